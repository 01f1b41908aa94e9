"""The tokens of a text are those of tantivy's index."""

from __future__ import annotations

import random

import tantivy

from headwater.searches.text_analysis import GAP, TextAnalyser

LETTERS = [chr(code) for code in range(1, 128)] + list("ÄöüßİжК漢字é̂²½٣ⅷ—„“")


def test_the_quick_way_for_ascii_and_the_gaps_agree_with_tantivy() -> None:
    chance = random.Random(1)
    for tokenizer in ("default", "en_stem", "whitespace"):
        built = tantivy.TextAnalyzerBuilder(
            tantivy.Tokenizer.whitespace() if tokenizer == "whitespace" else tantivy.Tokenizer.simple()
        )
        if tokenizer != "whitespace":
            built = built.filter(tantivy.Filter.remove_long(40)).filter(tantivy.Filter.lowercase())
        if tokenizer == "en_stem":
            built = built.filter(tantivy.Filter.stemmer("english"))
        theirs, ours = built.build(), TextAnalyser(tokenizer)
        for _ in range(400):
            letters = LETTERS[:127] if chance.random() < 0.5 else LETTERS
            text = "".join(chance.choices([*letters, " ", "e"], k=chance.randint(0, 60)))
            text += chance.choice(["", " " + "x" * 39, " " + "y" * 40 + " z", " " + "ä" * 20, " " + "İ" * 19])
            assert [token for token in ours.tokens(text) if token != GAP] == theirs.analyze(text)


def test_an_index_finds_a_phrase_where_the_tokens_stand_side_by_side() -> None:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="default")
    index = tantivy.Index(builder.build())
    long = "x" * 40
    for text, found in ((f"a {long} b", 0), ("a b", 1), (f"{long} a b", 1)):
        with index.writer(15_000_000, 1) as writer:
            writer.delete_all_documents()
            writer.add_document(tantivy.Document(text=text))
        index.reload()
        tokens = TextAnalyser("default").tokens(text)
        ours = any(tokens[at : at + 2] == ["a", "b"] for at in range(len(tokens)))
        assert index.searcher().search(index.parse_query('"a b"', ["text"])).count == found
        assert ours == bool(found)
