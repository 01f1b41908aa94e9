"""Text analysis: a text as tokens, by tantivy's analysers.

What it is: ``TextAnalyser``, which gives the tokens of a text in their order, with a gap where tantivy leaves one out.
Invariants: the tokens are those that the search sink's index has of the same text and tokenizer. Texts of ASCII are cut
here when the tokenizer is ``default``, because that is some seven times as quick; a test compares both ways.
Not here: what is done with tokens (``document_batch.py``, ``query_parser.py``).
Read next: ``sinks/search_sink.py``.
"""

from __future__ import annotations

import string
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headwater.errors import MissingExtra

if TYPE_CHECKING:
    import tantivy

TOKENIZERS = ("default", "en_stem", "raw", "whitespace")
LONG = 40  # tantivy leaves out tokens of so many bytes
GAP = ""  # in the place of a token that was left out: no token is empty

_CUT = str.maketrans({chr(code): " " for code in range(128) if chr(code) not in string.ascii_letters + string.digits})


class TextAnalyser:
    """The tokens of texts.

    >>> TextAnalyser("default").tokens("Rivers, and the Danube-Delta")
    ['rivers', 'and', 'the', 'danube', 'delta']
    >>> TextAnalyser("en_stem").tokens("Rivers")
    ['river']
    """

    def __init__(self, tokenizer: str) -> None:
        self.tokenizer = tokenizer
        self._tantivy = _tantivy_analyser(tokenizer)

    def tokens(self, text: str) -> list[str]:
        """The tokens, and ``GAP`` where one was left out."""
        if self.tokenizer == "raw":
            return [text]
        if self.tokenizer == "default" and text.isascii():
            cut = text.lower().translate(_CUT).split()
            if cut and max(map(len, cut)) >= LONG:
                return [GAP if len(token) >= LONG else token for token in cut]
            return cut
        found: list[str] = self._tantivy.analyze(text)
        if self.tokenizer == "whitespace":
            return found
        # Of n letters a word has n bytes at least, and 4 n at most.
        if max(map(len, text.split()), default=0) < (LONG if text.isascii() else LONG // 4):
            return found
        # Tokens are measured as they are written: small letters and stems may have other lengths.
        written = _tantivy_analyser("simple").analyze(text)
        return [GAP if len(each.encode()) >= LONG else token for token, each in zip(found, written, strict=True)]


@lru_cache(maxsize=8)
def _tantivy_analyser(tokenizer: str) -> tantivy.TextAnalyzer:
    with MissingExtra.raised_for("stored searches", "search"):
        import tantivy

    simple: Any = tantivy.Tokenizer.simple()
    if tokenizer == "raw":
        return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).build()
    if tokenizer == "whitespace":
        return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    if tokenizer == "simple":
        return tantivy.TextAnalyzerBuilder(simple).build()
    builder = tantivy.TextAnalyzerBuilder(simple).filter(tantivy.Filter.lowercase())
    if tokenizer == "en_stem":
        builder = builder.filter(tantivy.Filter.stemmer("english"))
    return builder.build()
