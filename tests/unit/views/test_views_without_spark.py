"""The package without the extra ``spark``: it imports, and says what to install when Spark is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # as if it were not installed
import headwater.views
try:
    headwater.views.register(None)
except headwater.errors.MissingExtra as error:
    print(error)
"""
TYPO = """
import sys
sys.modules["pyspark"] = None
import headwater as hw
app = hw.App("shop", home=sys.argv[1])
app.table("users", "id BIGINT, country STRING", key="id")
messages = []
for sql in sys.argv[2:]:
    try:
        app.view("countries", sql)
    except hw.HeadwaterError as error:
        messages.append(str(error))
print("\\n\\n".join(messages))
"""


def test_a_missing_pyspark_is_told_with_the_install_line():
    run = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, cwd=SOURCE)

    assert run.stderr == ""
    assert run.stdout.startswith("reading topics with Spark needs the package pyspark")
    assert 'Hint: pip install "headwater[spark]"' in run.stdout


def test_importing_views_imports_no_pyspark():
    code = "import sys, headwater.views; print('pyspark' in sys.modules)"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCE, check=True)

    assert run.stdout.strip() == "False"


def test_a_typo_in_a_views_sql_is_refused_without_spark(tmp_path: Path):
    typos = ["SELEC country FROM users", "SELECT count(* FROM users", "SELECT nothing FROM users"]

    run = subprocess.run(
        [sys.executable, "-c", TYPO, str(tmp_path / "home"), *typos], capture_output=True, text=True, cwd=SOURCE
    )

    assert run.stderr == ""
    refused = run.stdout.split("\n\n")
    for sql, message in zip(typos, refused, strict=True):
        assert message.startswith('view "countries" (')
        assert sql in message
