"""Try the mutants and print a table: rule, mutant, caught by. Exits with 1 if one survives or others catch it, too."""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from coatcheck_conformance import Level
from coatcheck_conformance.rules import sort_key
from mutants import Trial, all_mutants, tried


def main(arguments: list[str]) -> int:
    """Try the mutants of these names or rules, or all, on a few processes more than there are cores: they often wait.

    With ``--thorough``, also on the bulky rules of other topics, which takes three times as long.
    """
    thorough = "--thorough" in arguments
    wanted = [each for each in arguments if each != "--thorough"]
    mutants = all_mutants()
    unknown = set(wanted) - mutants.keys() - {each.rule for each in mutants.values()}
    if unknown:
        print(
            f"there is neither a mutant nor a mutant's rule called {', '.join(sorted(unknown))}",
            file=sys.stderr,
        )
        return 2
    names = [each.name for each in mutants.values() if not wanted or {each.name, each.rule} & set(wanted)]
    random.Random(0).shuffle(names)
    began = time.perf_counter()
    context = get_context("spawn")  # whose logs are turned off: mutants make core complain, as it should
    size = 2 * (os.cpu_count() or 1) + 4
    with ProcessPoolExecutor(size, mp_context=context, initializer=logging.disable) as pool:
        trials = []
        for done in as_completed([pool.submit(tried, name, thorough=thorough) for name in names]):
            trials.append(done.result())
            if len(trials) % 50 == 0:
                print(f"{len(trials)} of {len(names)} tried", file=sys.stderr, flush=True)
    trials = [_again(each, thorough=thorough) for each in trials]
    _print_table(trials)
    bad = [each for each in trials if not each.good]
    without = [] if wanted else _without_mutant()
    for each in without:
        print(f"{each}: a MUST rule without a mutant")
    seconds = time.perf_counter() - began
    print(f"{len(trials)} mutants, {len(bad)} not caught by their rule alone, in {seconds:.0f} s")
    return 1 if bad or without else 0


def _again(trial: Trial, *, thorough: bool) -> Trial:
    """Try a mutant that was not caught by its rule alone once more, with nothing beside it.

    Rules have limits of time, and on a busy machine threads meet less often; what no run catches needs no second look.
    """
    if trial.good or not trial.caught:
        return trial
    others = f", and by {', '.join(trial.others)}" if trial.others else ""
    told = f"was caught in {trial.caught} of {trial.of} runs{others}"
    print(f"{trial.name} {told}; trying it alone", file=sys.stderr)
    return tried(trial.name, thorough=thorough)


def _print_table(trials: list[Trial]) -> None:
    width = max((len(each.name) for each in trials), default=0)
    print(f"{'rule':<22} {'mutant':<{width}} caught by")
    for each in sorted(trials, key=lambda one: (sort_key(one.rule), one.name)):
        times = "" if each.of == 1 else f" in {each.caught} of {each.of} runs"
        own = f"it alone{times}" if each.good else f"it{times}" if each.caught else "NOT BY IT"
        others = f", and by {', '.join(each.others)}" if each.others else ""
        print(f"{each.rule:<22} {each.name:<{width}} {own}{others}")


def _without_mutant() -> list[str]:
    mutants = all_mutants().values()
    suites = {each.suite for each in mutants}
    musts = {each.id for suite in suites for each in suite.rules() if each.level is Level.MUST}
    return sorted(musts - {each.rule for each in mutants}, key=sort_key)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
