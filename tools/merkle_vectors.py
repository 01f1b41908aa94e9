"""The public test vectors of transparency-dev/merkle, against our proofs: ``make merkle-vectors ARGS=FOLDER``.

What it is: every JSON file under ``testdata`` is a proof and whether it holds; ours must say the same. The folder is a
copy of that project's source: no released version of its Go module has the files yet.
Invariants: all kinds are found (inclusion, consistency, and both for subtrees), and none is passed over. Leaves with
status 1 when one differs.
Not here: our own cases, which need nothing from outside (``tests/unit/log/proof/test_merkle_proof.py``).
Read next: ``src/headwater/log/proof/merkle_proof.py``.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from headwater.log.proof.merkle_proof import consistency_holds, inclusion_holds, subtree_holds


def holds(kind: str, case: dict[str, Any]) -> bool:
    """What our code says of a case."""
    proof = [base64.b64decode(each) for each in case["proof"] or ()]
    roots = {name: base64.b64decode(case.get(name) or "") for name in ("root", "root1", "root2", "leafHash")}
    if kind == "inclusion":
        return inclusion_holds(roots["leafHash"], case["leafIdx"], case["treeSize"], proof, roots["root"])
    if kind == "consistency":
        return consistency_holds(case["size1"], case["size2"], roots["root1"], roots["root2"], proof)
    if kind == "subtreeconsistency":
        return subtree_holds(case["start"], case["end"], case["size"], roots["root1"], roots["root2"], proof)
    start, end, index = case["start"], case["end"], case["leafIdx"]
    inside = 0 <= start <= index < end and start % (1 << (end - start - 1).bit_length()) == 0
    return inside and inclusion_holds(roots["leafHash"], index - start, end - start, proof, roots["root"])


def main() -> None:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(description="The public vectors of Merkle proofs, against ours.")
    parser.add_argument("folder", type=Path, help="a copy of the project's source")
    folder = parser.parse_args().folder
    seen: Counter[str] = Counter()
    wrong = []
    for path in sorted((folder / "testdata").rglob("*.json")):
        kind, case = path.relative_to(folder / "testdata").parts[0], json.loads(path.read_text())
        seen[kind] += 1
        if holds(kind, case) == case["wantErr"]:
            wrong.append(f"{path}: {case['desc']}")
    print(*wrong, *(f"{kind}: {count}" for kind, count in seen.items()), sep="\n")
    sys.exit(bool(wrong) or len(seen) < 4)


if __name__ == "__main__":
    main()
