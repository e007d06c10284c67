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

from coatcheck_sandbox.demo.programme import REQUIRED_ACCURACY, Reading, programme
from coatcheck_sandbox.demo.providers import OCR, VIDEO
from coatcheck_sandbox.demo.screen import Screen, show_results
from coatcheck_sandbox.demo.stage import Scene, play


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description="Scanned pages, or videos, through a provider's asynchronous API, with a worker killed in the middle.",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the database, the logs and the videos to look at"
    )
    parser.add_argument(
        "--video", action="store_true", help="make videos, which can be played, instead of reading pages"
    )
    parser.add_argument(
        "--handler", metavar="KEY", choices=sorted({**OCR, **VIDEO}), help="the provider, such as ocr:azure"
    )
    options = parser.parse_args(arguments)
    key = options.handler or ("video:volcengine" if options.video else "ocr:gitee")
    if options.video and key not in VIDEO:
        parser.error(f"{key} makes no videos; leave --video out, or choose one of {', '.join(sorted(VIDEO))}")
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-demo-"))
    plays = programme(key, folder / "videos")
    began = time.monotonic()
    scene = Scene()

    def draw(now: Scene) -> None:
        nonlocal scene
        scene = now
        screen.draw(now)

    console.print(
        f"A provider starts on this machine, as {key} has it, and two workers on one SQLite file. "
        f"{plays.what.capitalize()} are submitted; then one worker is killed.\n"
    )
    keep = options.keep or key in VIDEO
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
    seconds = time.monotonic() - began
    if good:
        reads = isinstance(plays, Reading)
        right = f"every page at least {REQUIRED_ACCURACY:.0%} right" if reads else "every video can be played"
        console.print(f"[green]Nothing lost, nothing sent twice, {right}[/] ({seconds:.0f} s).")
    else:
        console.print("[bold red]Something was lost, sent twice or misread; see above.[/]")
    if keep:
        what = "the workers' logs" + (" and the videos" if key in VIDEO else "")
        console.print(f"Kept: {folder / 'jobs.db'}, {what} beside it.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
