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


def test_a_missing_pyspark_is_told_with_the_install_line():
    run = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, cwd=SOURCE)

    assert run.stderr == ""
    assert run.stdout.startswith("reading topics with Spark needs the package pyspark")
    assert 'Hint: pip install "headwater[spark]"' in run.stdout


def test_importing_views_imports_no_pyspark():
    code = "import sys, headwater.views; print('pyspark' in sys.modules)"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCE, check=True)

    assert run.stdout.strip() == "False"
