"""Who may import whom: the order of ``FOLDERS``, read off the source without importing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "fedquilt"

# Lowest first: a module may import from its own folder and from earlier ones, lazily or not.
FOLDERS = (
    *("core", "data", "losses", "models", "training", "methods", "metrics", "privacy"),
    *("recipes", "engines", "runs", "reports", "deploy", "cli"),
)
# In these two folders the order of the files counts as well.
CORE = (
    *("shown_text", "wording", "errors", "log_files", "parsed_text", "own_code", "registry"),
    *("seeding", "version", "flat_tree", "tree", "payload"),
    *("gaussian_accountant", "noise", "processes", "update_checks", "norms"),
    *("measured_norms", "bounds_report", "bounds"),
    *("fixed_point", "robust", "compact_payload"),
    *("aggregation_rules", "totals", "atomic_files", "settings", "child_process"),
)
TRAINING = (
    *("privacy_settings", "task", "provenance", "contribution", "parts", "activity", "advice"),
    *("local_training", "local_optimizer", "server_optimizer", "method", "averaging"),
    *("pooled_statistics", "warm_up", "prototype_averaging", "uncertain_mixing", "own_rows"),
    *("whole_models", "private_training", "client_step", "noise_plan", "private_step", "client"),
    *("agreed_bounds", "agreed_scales", "model_checks", "fixed_buffers", "rounds"),
)
ORDERED = {"core": CORE, "training": TRAINING}

# A method is a value with hooks: it sees what it computes with, and nothing of where it runs.
METHODS_MAY_IMPORT = (
    *("core.*", "losses.*", "models.*", "training.*", "methods.*"),
    *("data.client_data", "data.batches", "data.splits", "data.co_occurrence"),
)

ONLY_IN = {"nvflare": "deploy.nvflare", "flwr": "engines.flower"}
SLOW = {"torch", "torchvision", "timm", "numpy", "scipy", "sklearn", "matplotlib"}


@dataclass(frozen=True)
class Import:
    """One import; ``target`` is a module of the package, or another package's top name."""

    target: str
    line: int
    is_lazy: bool  # inside a function, or for the type checker only


Modules = Mapping[str, list[Import]]


def read_package(sources: Mapping[str, str]) -> Modules:
    return {name: list(_imports(text, sources)) for name, text in sources.items()}


def _imports(text: str, sources: Mapping[str, str]) -> Iterator[Import]:
    for node, is_lazy in _walk(ast.parse(text), False):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(_target(name, sources), node.lineno, is_lazy)


def _walk(node: ast.AST, is_lazy: bool) -> Iterator[tuple[ast.AST, bool]]:
    yield node, is_lazy
    runs_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, is_lazy or runs_later or for_types)


def _target(name: str, sources: Mapping[str, str]) -> str:
    top, _, inner = name.partition(".")
    if top != "fedquilt":
        return top
    while inner and inner not in sources:  # ``from fedquilt.core.tree import add`` means the module
        inner = inner.rpartition(".")[0]
    return inner or "fedquilt"


def place_of(module: str) -> tuple[int, int] | None:
    """Where a module stands: its folder, and its file where a folder's files are ordered."""
    folder, _, inner = module.partition(".")
    if module in ("fedquilt", "__main__"):  # public names and the command point everywhere
        return len(FOLDERS), 0
    if folder not in FOLDERS:
        return None
    files = ORDERED.get(folder, ())
    if inner and files:
        return (FOLDERS.index(folder), files.index(inner)) if inner in files else None
    return FOLDERS.index(folder), 0


def _fits(module: str, entry: str) -> bool:
    folder = entry.removesuffix(".*")
    return module == folder or (entry.endswith(".*") and module.startswith(f"{folder}."))


def broken_order(modules: Modules) -> list[str]:
    found = []
    for name, module in modules.items():
        place = place_of(name)
        for each in module:
            target = place_of(each.target) if each.target in modules else None
            if place is not None and target is not None and target > place:
                found.append(f"{name}, line {each.line}: imports {each.target}, a later one")
    return found


def broken_method_rule(modules: Modules) -> list[str]:
    return [
        f"{name}, line {each.line}: imports {each.target}; a method may import only "
        f"{', '.join(METHODS_MAY_IMPORT)}"
        for name, module in modules.items()
        if name.startswith("methods.")
        for each in module
        if each.target in modules
        and not any(_fits(each.target, entry) for entry in METHODS_MAY_IMPORT)
    ]


def misplaced_frameworks(modules: Modules) -> list[str]:
    return [
        f"{name}, line {each.line}: imports {each.target}; only {ONLY_IN[each.target]} may"
        for name, module in modules.items()
        for each in module
        if each.target in ONLY_IN and not _fits(name, f"{ONLY_IN[each.target]}.*")
    ]


def slow_at_start(modules: Modules, prefix: str = "cli") -> list[str]:
    """What importing the command line would import before a verb asks for it, also by detours."""
    waiting = [(name, name) for name in modules if _fits(name, f"{prefix}.*")]
    seen, found = set(), []
    while waiting:
        name, route = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for each in modules[name]:
            if each.is_lazy:
                continue
            if each.target in SLOW:
                found.append(f"{route} -> {each.target}")
            waiting += [
                (parent, f"{route} -> {each.target}")
                for parent in _with_parents(each.target)
                if parent in modules
            ]
    return found


def _with_parents(module: str) -> list[str]:
    """Importing ``a.b.c`` runs ``a`` and ``a.b`` first."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def cycles(modules: Modules) -> set[frozenset[str]]:
    """Groups of modules that import each other, directly or not, whenever the import runs."""
    reached = {name: _reachable(name, modules) for name in modules}
    return {
        frozenset({name, *(other for other in reached[name] if name in reached[other])})
        for name in modules
        if name in reached[name]
    }


def _reachable(start: str, modules: Modules) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for each in modules[waiting.pop()]:
            if each.target in modules and each.target not in seen:
                seen.add(each.target)
                waiting.append(each.target)
    return seen


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "fedquilt"


@pytest.fixture(scope="module")
def package() -> Modules:
    paths = sorted(PACKAGE.rglob("*.py"))
    return read_package({module_name(path): path.read_text(encoding="utf-8") for path in paths})


def test_every_module_has_a_place(package: Modules):
    homeless = [name for name in package if place_of(name) is None]
    assert not homeless, f"{homeless} are in none of the folders {FOLDERS}, or not in {ORDERED}"


def test_every_place_has_a_module(package: Modules):
    ordered = [f"{folder}.{file}" for folder, files in ORDERED.items() for file in files]
    entries = [*(f"{folder}.*" for folder in FOLDERS), *ordered, *METHODS_MAY_IMPORT]
    stale = [entry for entry in entries if not any(_fits(name, entry) for name in package)]
    assert not stale, f"no such module any more: take {stale} off the lists here"


def test_modules_import_downwards(package: Modules):
    assert broken_order(package) == []


def test_methods_import_only_what_they_compute_with(package: Modules):
    assert broken_method_rule(package) == []


def test_deployment_frameworks_stay_in_their_engines(package: Modules):
    assert misplaced_frameworks(package) == []


def test_command_line_starts_without_slow_packages(package: Modules):
    assert slow_at_start(package) == []


def test_flares_process_of_a_job_at_a_site_starts_without_slow_packages(package: Modules):
    """It only passes bytes on, and there is one for every site and job."""
    assert slow_at_start(package, "deploy.nvflare.executor") == []


def test_no_cycles(package: Modules):
    assert cycles(package) == set()


def test_methods_table_and_folder_agree():
    source = (PACKAGE / "methods" / "__init__.py").read_text(encoding="utf-8")
    (table,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "METHODS"
    )
    files = {path.stem: path for path in (PACKAGE / "methods").glob("*.py")}
    files.pop("__init__")
    named = {name: place.partition(":") for name, place in table.items()}
    assert {module for module, _, _ in named.values()} == {f"fedquilt.methods.{f}" for f in files}
    for name, (module, _, class_name) in named.items():
        stem = module.rpartition(".")[2]
        assert name.replace("-", "_") == stem, "a method's name and its file's are the same"
        tree = ast.parse(files[stem].read_text(encoding="utf-8"))
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        assert class_name in classes


MADE_UP = {
    "fedquilt": "",
    "core.tree": "def f():\n    from fedquilt.training.rounds import run_rounds",
    "training.rounds": "import flwr",
    "training.task": "if TYPE_CHECKING:\n    from fedquilt.training import method",
    "training.method": "from fedquilt.training.task import Task",
    "methods": "",
    "methods.fedavg": "from fedquilt.data.sources import SOURCES",
    "data.sources": "import torch",
    "deploy.nvflare.server": "import nvflare.apis",
    "cli.main": "from fedquilt.methods.fedavg import FedAvg",
}


def test_broken_rules_are_found():
    modules = read_package(MADE_UP)
    assert broken_order(modules) == [
        "core.tree, line 2: imports training.rounds, a later one",
        "training.task, line 2: imports training.method, a later one",
    ]
    (broken,) = broken_method_rule(modules)
    assert broken.startswith("methods.fedavg, line 1: imports data.sources")
    assert misplaced_frameworks(modules) == [
        "training.rounds, line 1: imports flwr; only engines.flower may"
    ]
    assert slow_at_start(modules) == ["cli.main -> methods.fedavg -> data.sources -> torch"]
    assert cycles(modules) == {frozenset({"training.task", "training.method"})}
    assert place_of("helpers") is None
    assert place_of("core.helpers") is None
