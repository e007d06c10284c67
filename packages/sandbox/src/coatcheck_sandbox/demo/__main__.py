"""`python -m coatcheck_sandbox.demo`: run the demo; exits 1 if anything was lost, sent twice or misread."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from coatcheck_sandbox.demo.programme import Filming, programme
from coatcheck_sandbox.demo.providers import OCR, VIDEO
from coatcheck_sandbox.demo.screen import Screen, show_results
from coatcheck_sandbox.demo.stage import Scene, play


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for; `key` is the handler's."""
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description="Scanned pages, or videos, through a provider's asynchronous API, with a worker killed half-way.",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the database and the logs to look at; videos are always left",
    )
    parser.add_argument(
        "--video", action="store_true", help="make videos, which can be played, instead of reading pages"
    )
    parser.add_argument(
        "--handler",
        dest="key",
        metavar="KEY",
        choices=sorted({**OCR, **VIDEO}),
        help="the provider to be, such as ocr:azure",
    )
    options = parser.parse_args(arguments)
    if options.key is None:
        options.key = "video:volcengine" if options.video else "ocr:gitee"
    if options.video and options.key not in VIDEO:
        parser.error(
            f"{options.key} makes no videos; leave --video out, or choose one of {', '.join(sorted(VIDEO))}"
        )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    options = _options(arguments)
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-demo-"))
    plays = programme(options.key, folder / "videos")
    keep = options.keep or isinstance(plays, Filming)
    began = time.monotonic()
    scene = Scene()

    def draw(now: Scene) -> None:
        nonlocal scene
        scene = now
        screen.draw(now)

    console.print(
        f"A provider starts on this machine, as {plays.key} has it, and two workers on one SQLite file. "
        f"{plays.what.capitalize()} are ordered; then one worker is killed.\n"
    )
    try:
        with Screen(console) as screen:
            verdicts = asyncio.run(play(folder, plays, draw))
        show_results(console, plays, verdicts, scene)
        good = all(verdict.good for verdict in verdicts)
    except (TimeoutError, ChildProcessError) as error:
        console.print(f"[bold red]The demo failed:[/] {error}")
        good, keep = False, True
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if good:
        console.print(
            f"[green]Nothing lost, nothing sent twice, {plays.promise}[/] ({time.monotonic() - began:.0f} s)."
        )
    else:
        console.print("[bold red]Something was lost, sent twice, or is not as it should be; see above.[/]")
    if keep:
        console.print(f"Kept: {folder}, with the database jobs.db and the workers' logs.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
