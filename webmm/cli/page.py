"""Commands for the web page: build it, serve it, and check records for its leaderboard."""

from __future__ import annotations

from pathlib import Path

import click

from webmm.cli.options import PLUGIN


@click.command()
@PLUGIN
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write into OUT even if it holds other files, which stay.")
@click.option("--npm", is_flag=True, help="Write the npm package instead, ready for `npm pack`.")
def bundle(out: Path, force: bool, npm: bool) -> None:
    """Build the web page in the folder OUT.

    The folder is complete: any static host can serve it. With --plugin, the page has the plugin's kernels and ops.
    """
    from webmm.page import bundle as page

    if npm:
        from webmm.page import npm as package

        click.echo(f"{out}: {package.build(out, force=force)} files, without TypeScript's declarations")
        return

    summary = page.build(out, force=force)
    weights = f"{summary.nbytes / 1e6:.1f} MB ({summary.first_load / 1e3:.0f} KB on first load)"
    click.echo(f"{out}: {summary.files:,} files with {summary.templates:,} templates, {weights}")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def leaderboard(files: tuple[Path, ...]) -> None:
    """Check records contributed to the leaderboard.

    For each of FILES (default: all files in the leaderboard), print its adapter, number of records and highest speed.
    """
    from webmm.page import leaderboard as page

    for file in files or sorted(page.folder().glob("*.json")):
        records = page.read([file])
        best = max(place.speed for board in page.boards(records) for place in board.places)
        click.echo(f"{file}: {records[0].adapter}, {len(records)} records, up to {best:,.0f}")
    page.read({file.resolve() for file in (*files, *page.folder().glob("*.json"))})


@click.command()
@PLUGIN
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 picks a free one."
)
@click.option("--browser/--no-browser", default=True, help="Whether to open the page in a browser.")
def serve(folder: Path | None, port: int, browser: bool) -> None:
    """Serve the web page to browsers on this machine.

    Serves the page in FOLDER, as built by `webmm bundle`. Without FOLDER, builds one, and keeps it in the cache folder
    until webmm or a plugin changes.
    """
    from webmm.page import kept
    from webmm.page import serve as http

    if folder:
        http.serve(folder, port, browser)
        return
    with kept.page(lambda words: click.echo(f"webmm: {words}")) as page:
        http.serve(page, port, browser)
