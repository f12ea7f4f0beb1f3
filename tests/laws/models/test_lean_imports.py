"""Model code for a command: what is left out is not imported, and torch's compiler still works when it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = next(one / "src" for one in Path(__file__).parents if (one / "pyproject.toml").exists())
LEFT_OUT = (
    "torch._inductor", "torch._dynamo.utils", "torch.distributed.tensor", "sympy", "sklearn", "pandas", "matplotlib",
    "scipy.stats", "scipy.optimize", "wordfreq", "polars", "datasets", "torchvision",
)  # fmt: skip

SCORING = f"""
import sys
from anchorscope.models.lean_imports import import_model_code

import_model_code()
import anchorscope.detecting.score, anchorscope.detectors.detector
from transformers.models.llama.modeling_llama import LlamaForCausalLM

print([name for name in {LEFT_OUT!r} if name in sys.modules])
"""

COMPILING = """
import sys
from anchorscope.models.lean_imports import DeferredCompiler, import_model_code

import_model_code()
import torch

calls = []

@torch.compiler.disable
def outside(x):
    calls.append(torch.compiler.is_compiling())
    return x + 1

@torch._dynamo.allow_in_graph
def whole(x):
    return x.sin() if torch.compiler.is_compiling() else x.sin()

assert type(sys.modules["torch._dynamo"]) is DeferredCompiler
assert outside(torch.zeros(1)).item() == 1
graphs = []

def count(graph, inputs):
    graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
    return graph.forward

def block(x):
    return outside(whole(x * 2)) * 3

compiled = torch.compile(block, backend=count)
x = torch.ones(2)
assert torch.equal(compiled(x), block(x))
assert type(sys.modules["torch._dynamo"]) is not DeferredCompiler
names = [[getattr(target, "__name__", str(target)) for target in graph] for graph in graphs]
print(len(graphs), names[0], any(calls))
"""


def run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_scoring_imports_only_what_it_uses() -> None:
    assert run(SCORING) == "[]"


def test_the_compiler_is_loaded_when_something_is_compiled_and_knows_every_mark() -> None:
    assert run(COMPILING) == "2 ['mul', 'whole'] False"
