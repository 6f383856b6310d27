"""The command line of `kolm recipes`, `kolm rules` and `kolm bench`."""

import argparse


def add_recipe_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    recipes = commands.add_parser("recipes", help="list a .kolm's recipes, the biggest savings first")
    recipes.add_argument("file", metavar="FILE")
    recipes.add_argument("--top", type=int, default=20, metavar="N", help="how many are shown (0: all)")
    recipes.add_argument("--json", action="store_true", help="one JSON object a line")
    recipes.add_argument(
        "--llama-lookup",
        metavar="OUT",
        help="write llama-server's --lookup-cache-static file (the artifact's base must be on this machine)",
    )
    recipes.set_defaults(command=_recipes)
    rules = commands.add_parser("rules", help="list a .kolm's rules, or write them as a JavaScript function")
    rules.add_argument("file", metavar="FILE")
    rules.add_argument(
        "--javascript", nargs="?", const="-", metavar="OUT", help="write an ES module (default: standard output)"
    )
    rules.add_argument("--json", action="store_true", help="rules.json, indented")
    rules.set_defaults(command=_rules)
    _add_bench(commands)


def _add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bench = commands.add_parser(
        "bench", help="measure a .kolm: the model alone, and with each source of drafted tokens; its rules"
    )
    bench.add_argument("file", metavar="FILE")
    bench.add_argument(
        "--jsonl", nargs="?", const="-", metavar="IN", help='lines of {"input": …} (default: the task\'s own examples)'
    )
    bench.add_argument("--n", type=int, default=32, metavar="N", help="at most this many inputs (32)")
    bench.add_argument("--at-once", type=int, default=1, metavar="N", help="requests at a time (1)")
    bench.add_argument("--rounds", type=int, default=3, metavar="N", help="the fastest of this many counts (3)")
    bench.add_argument("--draft", metavar="BASE", help="measure this base as a draft model too")
    bench.add_argument("--json", action="store_true", help="one JSON object")
    bench.add_argument("--keyring", metavar="FILE")
    bench.add_argument(
        "--allow-untrusted", action="store_true", help="run an intact file although nobody vouches for its key"
    )
    bench.set_defaults(command=_bench)


def _recipes(options: argparse.Namespace) -> int:
    from gpu_runners.cli.recipes import recipes

    if options.llama_lookup is not None:
        from gpu_runners.cli.recipe_export import llama_lookup

        return llama_lookup(options.file, options.llama_lookup)
    return recipes(options.file, top=options.top, as_json=options.json)


def _rules(options: argparse.Namespace) -> int:
    from gpu_runners.cli.recipes import rules

    return rules(options.file, javascript=options.javascript, as_json=options.json)


def _bench(options: argparse.Namespace) -> int:
    from gpu_runners.cli.bench import bench

    return bench(
        options.file,
        jsonl=options.jsonl,
        n=options.n,
        at_once=options.at_once,
        rounds=options.rounds,
        draft=options.draft,
        as_json=options.json,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )
