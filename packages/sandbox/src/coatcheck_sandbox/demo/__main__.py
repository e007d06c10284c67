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

from coatcheck_sandbox.demo.screen import Screen, show_results
from coatcheck_sandbox.demo.stage import REQUIRED_ACCURACY, Scene, play


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description="Scanned pages through an OCR provider's asynchronous API, with a worker killed in the middle.",
    )
    parser.add_argument("--keep", action="store_true", help="leave the database and the logs to look at")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-demo-"))
    began = time.monotonic()
    scene = Scene()

    def draw(now: Scene) -> None:
        nonlocal scene
        scene = now
        screen.draw(now)

    console.print(
        "A provider starts on this machine and two workers on one SQLite file. "
        "Pages are submitted; then one worker is killed.\n"
    )
    keep = options.keep
    try:
        with Screen(console) as screen:
            verdicts = asyncio.run(play(folder, draw))
        show_results(console, verdicts, scene)
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
        console.print(
            f"[green]Nothing lost, nothing sent twice, every page at least {REQUIRED_ACCURACY:.0%} right[/] "
            f"({seconds:.0f} s)."
        )
    else:
        console.print("[bold red]Something was lost, sent twice or misread; see above.[/]")
    if keep:
        console.print(f"Kept: {folder / 'jobs.db'} and the workers' logs beside it.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
