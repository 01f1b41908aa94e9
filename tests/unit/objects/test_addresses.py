"""Addresses of object stores: what they say, and what is wrong with them."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidDeclaration
from headwater.objects.object_address import CACHE_BYTES, ObjectAddress


def test_a_bucket_and_a_folder_are_read() -> None:
    bucket = ObjectAddress.parse("s3://lake/apps/shop/?region=eu-central-1")
    folder = ObjectAddress.parse("file:///mnt/apps/shop%20one?cache_bytes=5")

    assert (bucket.bucket, bucket.prefix, bucket.endpoint, bucket.region) == ("lake", "apps/shop", None, "eu-central-1")
    assert (str(folder.path), folder.cache_bytes, bucket.cache_bytes) == ("/mnt/apps/shop one", 5, CACHE_BYTES)
    assert str(bucket) == "s3://lake/apps/shop/?region=eu-central-1"


def test_hdfs_is_named_by_its_namenode() -> None:
    address = ObjectAddress.parse("webhdfs://namenode:50070/apps/shop/?lease_seconds=5")

    assert (address.server, address.prefix, address.lease_seconds) == ("namenode:50070", "apps/shop", 5)
    assert (address.open().shown, address.bucket) == ("webhdfs://namenode:50070/apps/shop", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shop", "'shop' is not the address of an object store"),
        ("s3:///shop", "'s3:///shop' is not the address of an object store"),
        ("file://shop", "'file://shop' is not the address of an object store"),
        ("file:///", "'file:///' is not the address of an object store"),
        ("hdfs://name/shop", "HDFS is reached by its HTTP interface, and not by 'hdfs://name/shop'"),
        ("webhdfs:///shop", "'webhdfs:///shop' is not the address of an object store"),
        ("webhdfs://ada:s3cret@name/shop", "the address 'webhdfs://name/shop' has credentials in it"),
        (
            "webhdfs://name/shop?region=eu",
            "the address 'webhdfs://name/shop' has an endpoint or a region, which HDFS has not",
        ),
        ("s3://lake/shop?endpont=x", "the address 's3://lake/shop' has a setting \"endpont\", which there is not"),
        ("s3://lake/shop?cache_bytes=many", "cache_bytes is a number of bytes, not 'many'"),
        ("s3://ada:s3cret@lake/shop", "the address 's3://lake/shop' has credentials in it"),
        ("s3://lake/shop?secret_access_key=s3cret", "the address 's3://lake/shop' has credentials in it"),
    ],
)
def test_a_wrong_address_is_told_in_a_sentence_without_secrets(text: str, said: str) -> None:
    with pytest.raises(InvalidDeclaration) as error:
        ObjectAddress.parse(text)

    assert str(error.value).splitlines()[0] == said
    assert "s3cret" not in str(error.value)
