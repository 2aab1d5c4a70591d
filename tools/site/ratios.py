"""The page of ratios to NumPy by commit: those measured by hand, and CI's where they were fetched."""

from __future__ import annotations

from pathlib import Path

from commits_drawn import PAGE, drawn, read

ROOT = Path(__file__).resolve().parents[2]
# The second is the file of the branch `ratios`, which pages.yml fetches.
FILES = (ROOT / "bench" / "results" / "lavapipe-commits.jsonl", ROOT / "build" / "commits.jsonl")
FOLDER = "results/"
PAGES = {"By commit": FOLDER + PAGE}
TEXT = """---
hide: [toc]
---

# By commit

How many times as fast as NumPy on one thread a few calls are on lavapipe, a CPU: by CPU time, with an interval of 95 %.
A change of the code shows as a step that stays; compare within one machine only. CI adds a point for each push, which
the site shows from the next one on. [How they are measured](../../bench/README.md#by-commit).

"""


def pages(files: tuple[Path, ...] = FILES) -> dict[str, str]:
    """Return the text of the page and its drawings by their paths on the site."""
    lines, wrong = [], ""
    for file in files:
        if file.exists():
            found, complaints = read(file.read_text(encoding="utf-8"))
            lines += found
            wrong += "".join(f"* {file.name}: {words}\n" for words in complaints)
    text, charts = drawn(lines)
    text = TEXT + (text or "There is no measurement yet.\n") + (wrong and f"\nLeft out:\n\n{wrong}")
    return {FOLDER + PAGE: text, **{FOLDER + name: content for name, content in charts.items()}}
