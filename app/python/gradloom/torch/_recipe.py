"""Recipes for wrapped modules: what of a recipe is about the model's computation, and the file that the engine reads."""

import contextlib
import json
import os
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence

from .._library import Error, UsageError
from ..commands import ask

# A wrapped module has these of a recipe. The rest is about steps, data, loss and optimizer, which the training loop has.
SETTINGS = ("passes", "rules", "precision", "planner", "in_place", "pieces", "threads", "memory_budget", "recompute")


def read_recipe(recipe: Any) -> Optional[Dict[str, Any]]:
    """A recipe given as a file's path, as JSON text or as a dict."""
    if recipe is None:
        return None
    name = "the recipe"
    text = json.dumps(recipe) if isinstance(recipe, dict) else os.fspath(recipe)
    if not text.lstrip().startswith("{"):
        name = text
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}", 5) from None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name}: no JSON: {error}", 3) from None
    if not isinstance(found, dict):
        raise UsageError(f"{name}: no Gradloom recipe: it is no object", 3)
    _check(found, name)
    return found


def _check(recipe: Dict[str, Any], name: str) -> None:
    """Raises the command's error for what is no part of a recipe, or has no such value."""
    whole = {"model": {"path": "model.onnx"}, **{key: value for key, value in recipe.items() if key != "ops"}}  # whose code is loaded already
    with _written(whole) as path:
        try:
            ask("recipe", ["--recipe", path])
        except Error as error:
            raise UsageError(str(error).replace(path, name), error.code) from None


def about_recipe(notes: Sequence[str]) -> List[str]:
    """Those that say what a recipe asks for in vain; the others are about the file, which nobody has written."""
    return [note for note in notes if note.startswith(("pass ", "recompute:", "offload:"))]


@contextlib.contextmanager
def recipe_words(recipe: Optional[Dict[str, Any]], without: List[str]) -> Iterator[List[str]]:
    """Words by which the engine takes the recipe's SETTINGS but for those `without`, valid inside the block."""
    if recipe is None:
        yield []
        return
    kept = {key: recipe[key] for key in SETTINGS if key in recipe and key not in without}
    with _written({"gradloom_recipe": 1, "model": {"path": "model.onnx"}, **kept}) as path:
        yield ["--recipe", path]


@contextlib.contextmanager
def _written(recipe: Dict[str, Any]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recipe.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(recipe, file)
        yield path
