"""Definitions and mentions, language by language."""

from __future__ import annotations

import pytest

from vivace.agent.repomap.symbols import symbols_of

TEXTS = {
    "python": (
        "import os\n@deco\nclass Shelf(Base):\n    def put(self, book):\n        '''not_a_name'''\n"
        "        return store_book(book)  # no_name either\nasync def main():\n    if x:\n        def inner(): ...\n",
        ["2 0 Shelf", "3 1 put", "6 0 main", "8 1 inner"],
        {"store_book", "Base", "deco"},
    ),
    "javascript": (
        "export class Shelf { put(book) { return storeBook(book) } }\n"
        "const pick = (x) => x.title\nfunction* walk() {}\n",
        ["0 0 Shelf", "0 1 put", "1 0 pick", "2 0 walk"],
        {"storeBook", "title"},
    ),
    "typescript": (
        "interface Book { title: string }\ntype Id = string\n"
        "abstract class A<T> { run(b: Book): Id { return go(b) } }\n",
        ["0 0 Book", "1 0 Id", "2 0 A", "2 1 run"],
        {"Book"},
    ),
    "tsx": (
        "export function View(p: Props) { return <Card title={p.name} /> }\n",
        ["0 0 View"],
        {"Card", "Props", "name"},
    ),
    "go": (
        "type Shelf struct{}\nfunc (s *Shelf) Put(b Book) { storeBook(b) }\nfunc main() {}\n",
        ["0 0 Shelf", "1 0 Put", "2 0 main"],
        {"storeBook", "Book", "Shelf"},
    ),
    "rust": (
        "struct Shelf;\nimpl Shelf {\n    fn put(&self, b: Book) { store_book(b) }\n}\n"
        "trait T { fn go(&self); }\nmacro_rules! m { () => {} }\n",
        ["0 0 Shelf", "1 0 Shelf", "2 1 put", "4 0 T", "4 1 go", "5 0 m"],
        {"store_book", "Book"},
    ),
    "java": (
        "class Shelf {\n  Shelf() {}\n  void put(Book b) { store.keep(b); }\n}\nenum Kind { A }\n",
        ["0 0 Shelf", "1 1 Shelf", "2 1 put", "4 0 Kind"],
        {"Book", "store", "keep"},
    ),
    "c": (
        "typedef struct shelf { int size; } shelf_t;\nstatic int *put(book *b) { return store_book(b); }\n",
        ["0 0 shelf_t", "0 1 shelf", "1 0 put"],
        {"store_book", "book"},
    ),
    "cpp": (
        "namespace lib {\nclass Shelf { void put(); };\n}\nvoid lib::Shelf::put() { storeBook(); }\n",
        ["0 0 lib", "1 1 Shelf", "3 0 put"],
        {"storeBook"},
    ),
    "bash": ("put() { store_book \"$1\"; }\nput x\n", ["0 0 put"], {"store_book"}),
}  # fmt: skip


@pytest.mark.parametrize("language", TEXTS)
def test_every_language(language: str) -> None:
    text, definitions, mentions = TEXTS[language]
    found = symbols_of(language, text)
    assert [f"{s.line} {s.depth} {s.name}" for s in found.definitions] == definitions
    assert mentions <= set(found.references)
    assert not {"not_a_name", "no_name"} & set(found.references)


def test_broken_and_unknown_texts_give_what_they_have() -> None:
    broken = symbols_of("python", "def good():\n    pass\n\nclass Half(\n    print 'x'\n  def (:\n")
    assert [s.name for s in broken.definitions] == ["good", "Half"]
    assert [s.name for s in symbols_of("go", "func ok() {}\nfunc {{{\n").definitions][:1] == ["ok"]
    assert symbols_of("markdown", "# Title") == symbols_of("", "x") == symbols_of("json", "{}")
