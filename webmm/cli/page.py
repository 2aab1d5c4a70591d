"""Commands about the page: building and serving it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what OUT holds, even if it is no page.")
@click.option("--npm", is_flag=True, help="Write the npm package instead, which `npm pack` takes.")
def bundle(out: Path, force: bool, npm: bool) -> None:
    """Write the page, with all that its shaders are made of, to the folder OUT, ready for any static host."""
    from webmm.page import bundle as page

    if npm:
        from webmm.page import npm as package

        click.echo(f"{out}: {package.build(out, force=force)} files; for their types: npm run build, in web/")
        return

    summary = page.build(out, force=force)
    weights = f"{summary.nbytes / 1e6:.1f} MB, of which {summary.first_load / 1e3:.0f} KB load at first"
    click.echo(f"{out}: {summary.files:,} files with {summary.templates:,} templates, {weights}")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def leaderboard(files: tuple[Path, ...]) -> None:
    """Check contributed records: FILES, by default those that are in the leaderboard; tell what each would add."""
    from webmm.page import leaderboard as page

    for file in files or sorted(page.folder().glob("*.json")):
        records = page.read([file])
        best = max(place.speed for board in page.boards(records) for place in board.places)
        click.echo(f"{file}: {records[0].adapter}, {len(records)} records, up to {best:,.0f}")
    page.read({file.resolve() for file in (*files, *page.folder().glob("*.json"))})


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--browser/--no-browser", default=True, help="Open the page in the browser.")
def serve(folder: Path | None, port: int, browser: bool) -> None:
    """Serve the page on this machine only; without FOLDER it is built for the occasion."""
    from webmm.page import bundle as page
    from webmm.page import serve as http

    if folder:
        http.serve(folder, port, browser)
        return
    with tempfile.TemporaryDirectory() as temporary:
        page.build(Path(temporary, "page"))
        http.serve(Path(temporary, "page"), port, browser)
