"""The recipe of a run: every option, declared once, checked, with defaults; `recipe.toml` in the run folder.

Choices that depend on the machine (`auto`) are resolved once, before the first step, and written down.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    field_validator,
    model_validator,
)

from anchorscope.answers.choose import YES_NO
from anchorscope.answers.template import PROMPTS
from anchorscope.catalogue import (
    BALANCE,
    DTYPES,
    GRADERS,
    KEEP,
    MOST_BATCH_TOKENS,
    ON_BAD_ROW,
    POSITIONS,
    chosen_evidence,
)
from anchorscope.catalogue import EVIDENCE as EVIDENCE_NAMES
from anchorscope.datasets.catalog import parse_spec
from anchorscope.datasets.question import parse_columns
from anchorscope.engine.sequences import EDGES, SITES
from anchorscope.errors import UserError, shortened, unknown
from anchorscope.files import read_regular
from anchorscope.options import (
    DATA,
    EVIDENCE,
    MEASUREMENT,
    OUTPUT,
    RUNNING,
    STATISTICS,
    flag,
    ignore,
    option,
    option_of,
    refuse,
)

_MANY = 1_000_000_000  # questions or items: more than anyone has
LARGEST_SEED = 2**63 - 1
"""The largest that TOML can write."""
MOST_RESAMPLES = 100_000
"""Each has a weight per item in memory, and intervals have long settled."""
_LONGEST_TEXT = 10_000  # letters
# bytes: of a megabyte of dots the standard library would take hours
_LARGEST_RECIPE = 20_000


class Recipe(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    model: str = option(
        "smollm2-135m", DATA, ignore("it is what is compared"), common=True
    )
    """The model: smollm2-135m, a folder with safetensors, a .gguf file, a hub id (OWNER/NAME), or shape:NAME."""
    datasets: tuple[str, ...] = option(
        ("atlas",), DATA, ignore("the questions themselves are compared"), common=True
    )
    """The question sets: atlas; popqa, triviaqa, hotpotqa, nq (from the hub, or popqa=FILE …); or a file's path."""
    columns: tuple[str, ...] = option(
        (), DATA, ignore("the questions themselves are compared"), common=True
    )
    """What your own file calls its columns: question=prompt,answers=gold."""
    limit: int | None = option(
        None,
        DATA,
        flag("other questions may have been asked"),
        common=True,
        ge=1,
        le=_MANY,
    )
    """Questions asked per dataset, drawn at random; all where not given."""
    site: str = option(
        "mlp",
        MEASUREMENT,
        refuse("the probes read another part of the block"),
        choices=SITES,
    )
    """Headline site: where in a block the probe of the chart reads."""
    position: str = option(
        "final",
        MEASUREMENT,
        refuse("the probes read at another token"),
        choices=POSITIONS,
    )
    """Headline position: at which token the probe of the chart reads."""
    edges: str = option(
        "all", MEASUREMENT, refuse("the knockout cuts other edges"), choices=EDGES
    )
    """Which later tokens lose the question's exact tokens: all, those outside them, or the answer's own (direct)."""
    balance: str = option(
        "relation",
        STATISTICS,
        refuse("true and false answers were drawn differently"),
        choices=BALANCE,
    )
    """Where true and false answers are balanced: within each relation, within the dataset, or not at all."""
    group_by: str = option(
        "subject",
        STATISTICS,
        refuse("folds and intervals keep other items together"),
        choices=("subject", "answer"),
    )
    """What keeps items in one fold: the same question or subject, or (as a leak check) the same answer."""
    exact_tokens: str = option(
        "auto",
        MEASUREMENT,
        refuse("other words of the question are cut"),
        choices=("auto", "rules"),
    )
    """What chooses the exact question tokens: auto (your spans, else the dataset, else rules), or rules alone."""
    random_cuts: int | None = option(
        None,
        MEASUREMENT,
        flag("the random control is the mean of another number of cuts"),
        ge=1,
        le=1_000,
    )
    """Draws of the random control: the parts of each are computed; charts and tables show the first. Where not
    given, five on a GPU, and on a CPU as many of them as take 1e12 operations, at least one."""
    directions: int | None = option(
        None,
        MEASUREMENT,
        flag("the parts were computed in another number of principal directions"),
        ge=2,
        le=100_000,
    )
    """Principal directions that states are reduced to for the parts; where not given, one for every fourth
    item and at most 192."""
    random_weights: bool = option(
        False, EVIDENCE, ignore("one more null of the parts, beside the same numbers")
    )
    """Whether the same items also go through random weights of the model's shape: a null of the parts."""
    evidence: tuple[str, ...] = option(
        ("knockout",),
        EVIDENCE,
        ignore("the knockout is always run, and experiments do not change each other"),
        choices=(*EVIDENCE_NAMES, "all"),
        common=True,
    )
    """Which experiments to run: the knockout with its controls always, and any of the further ones."""
    parts: tuple[str, ...] = option(
        (), EVIDENCE, flag("the four parts are of two other sources")
    )
    """Two sources whose four parts are computed, beside those of question and answer: context,answer or
    context[1],context[2], of context, question, thinking, answer. Where not given, the passages and the answer."""
    evidence_items: int | None = option(
        None, EVIDENCE, ignore("only further experiments use it"), ge=60, le=_MANY
    )
    """Items in the experiments that take many passes; where not given, 120 on a CPU and all on a GPU."""
    window: int | None = option(
        None,
        EVIDENCE,
        ignore("it concerns the further experiments only"),
        ge=1,
        le=10_000,
    )
    """Layers in a window of the experiment layers; a quarter of the depth where not given."""
    prompt: str = option(
        "few-shot",
        DATA,
        refuse("the question was put in another way"),
        choices=PROMPTS,
        common=True,
    )
    """How the question is put: after solved examples, without any, or through the model's chat template."""
    thinking: int = option(
        0,
        DATA,
        refuse("the models thought before their answers, or not"),
        ge=0,
        le=32_768,
    )
    """Tokens that the model may think before its answer, with --prompt chat; 0: thinking is switched off."""
    grader: str = option(
        "rules",
        DATA,
        refuse("another grader labelled the answers"),
        choices=tuple(GRADERS),
    )
    """What decides which answers are true: our own rules, or a plug-in's grader."""
    yes_no: str = option(
        "drop",
        DATA,
        flag("yes/no questions are in one run and not in the other"),
        choices=YES_NO,
    )
    """What becomes of questions whose answer is yes or no, which chance gets right half of the time."""
    on_bad_row: str = option(
        "fail",
        DATA,
        ignore("the questions themselves are compared"),
        choices=ON_BAD_ROW,
    )
    """What a bad row of a question file does: fail, or skip and count."""
    large_files: bool = option(
        False, DATA, ignore("it says what may be read, not what is measured")
    )
    """Whether question files may be larger than 2 GB, unpacked; memory then grows with them."""
    seed: int = option(
        0,
        STATISTICS,
        flag("questions, folds and resamples were drawn again"),
        common=True,
        ge=0,
        le=LARGEST_SEED,
    )
    """Seed of every draw."""
    device: str = option(
        "auto",
        RUNNING,
        ignore("what it changes is the precision, which is compared"),
        common=True,
    )
    """auto, cpu, cuda, cuda:N, or balanced (layers spread over all GPUs of this machine)."""
    dtype: str = option(
        "auto", RUNNING, flag("the model computed in another precision"), choices=DTYPES
    )
    """Precision of the model; auto is float32 on the CPU and bfloat16 on a GPU."""
    batch_tokens: int | None = option(
        None,
        RUNNING,
        ignore("only the last digits depend on it"),
        ge=1,
        le=MOST_BATCH_TOKENS,
    )
    """Tokens run together, which the last digits depend on; found from the size of the memory where not given, and
    halved whenever memory runs out."""
    threads: int | None = option(
        None, RUNNING, ignore("only the last digits depend on it"), ge=1, le=1024
    )
    """Threads that one worker computes with on a CPU, which the last digits depend on; where not given, as many as
    torch takes here."""
    max_new_tokens: int = option(
        16,
        DATA,
        flag("longer answers are cut off, and not used, at another length"),
        ge=1,
        le=512,
    )
    """Longest answer; longer ones count as truncated."""
    max_per_class: int = option(
        1500, STATISTICS, flag("another number of items may be used"), ge=30, le=_MANY
    )
    """At most this many true, and this many false, answers per dataset."""
    folds: int = option(
        5,
        STATISTICS,
        flag("probes learned from another share of the items"),
        ge=2,
        le=20,
    )
    """Outer folds."""
    bootstrap: int = option(
        2000,
        STATISTICS,
        flag("intervals rest on another number of resamples"),
        ge=100,
        le=MOST_RESAMPLES,
    )
    """Resamples behind every interval."""
    keep: tuple[str, ...] = option(
        (), OUTPUT, ignore("it only says what files stay"), choices=KEEP, common=True
    )
    """What stays in the run folder beside the results: states (clean) is enough, as anchorscope detect computes the
    rest where it needs it: states-cut (under the knockout and a random cut) and detection (what else detectors
    read: confidence, P(True), sampled answers, further states)."""
    report: bool = option(
        True,
        OUTPUT,
        ignore("it says whether a page is made, not what is measured"),
        common=True,
    )
    """Whether figures and a page are made of the results; tables, answer.json and the manifest are written anyway."""
    trust_remote_code: bool = option(
        False, RUNNING, ignore("it says what may be loaded, not what is measured")
    )
    """Whether code that comes with a model may run."""
    allow_random_weights: bool = option(
        False, RUNNING, ignore("the weights themselves are compared")
    )
    """Whether shape:NAME, a model that knows nothing, may be run; its answers and labels must be in the dataset."""

    @field_validator("*")
    @classmethod
    def _check_field(cls, value: Any, info: Any) -> Any:
        choices = option_of(cls.model_fields[info.field_name]).choices
        for word in value if isinstance(value, tuple) else (value,):
            if choices and word not in choices:
                raise unknown(info.field_name.replace("_", "-"), word, choices)
        if info.field_name == "evidence":
            return chosen_evidence(value)
        if info.field_name == "keep":
            return tuple(name for name in KEEP if name in value)
        return value

    @model_validator(mode="after")
    def _check_combinations(self) -> "Recipe":
        specs = [parse_spec(text) for text in self.datasets]
        names = [spec.name for spec in specs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if not names or repeated:
            problem = f"{', '.join(repeated)} twice" if repeated else "none"
            raise UserError(
                f"A run needs datasets with different names, found {problem}; name each file differently."
            )
        parse_columns(self.columns)
        if self.parts and (len(self.parts) != 2 or len({*self.parts}) != 2):
            raise UserError(
                f"--parts is {','.join(self.parts)!r}; name two different sources, like context,answer."
            )
        if self.thinking and self.prompt != "chat":
            raise UserError(
                f"--thinking goes with --prompt chat, found --prompt {self.prompt}; give both, or neither."
            )
        if self.edges == "direct" and self.position == "answer_before":
            raise UserError(
                "Edges 'direct' cuts what the answer's own tokens see, and position 'answer_before' stands before "
                "them: nothing would change there. Choose --edges all, or another --position."
            )
        if self.columns and all(
            spec.path is None and spec.hub is None for spec in specs
        ):
            raise UserError(
                f"Columns are named for a file of your own (found: {', '.join(self.columns)}), and the datasets are "
                f"{', '.join(self.datasets)}; leave --columns out, or give the path of a file, or hub:OWNER/NAME."
            )
        return self


def make_recipe(given: Mapping[str, Any]) -> Recipe:
    """A recipe from options, whose names may have - or _; reports the first mistake in one line."""
    options = {name.replace("-", "_"): value for name, value in given.items()}
    for name, value in options.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not is_plain_text(text):
                raise UserError(
                    f"Option {name.replace('_', '-')!r} is {shortened(text)}: no name is longer than "
                    f"{_LONGEST_TEXT:,} letters, has a zero in it, or is not UTF-8; give another."
                )
    try:
        return Recipe(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]).replace("_", "-")
        if first["type"] == "extra_forbidden":
            raise unknown(
                "option",
                name,
                [field.replace("_", "-") for field in Recipe.model_fields],
            ) from None
        reason = (
            'it must be a list, like ["atlas"]'
            if first["type"] == "tuple_type"
            else first["msg"].lower()
        )
        raise UserError(
            f"Option {name!r} is {shortened(first['input'])}: {reason}."
        ) from None


def about(name: str) -> str:
    """An option's help: purpose, choices and default."""
    field = Recipe.model_fields[name]
    text, choices = " ".join(str(field.description).split()), option_of(field).choices
    if choices:
        text += f" {'Any' if isinstance(field.default, tuple) else 'One'} of: {', '.join(choices)}."
    if field.default in (None, ()) or field.default is False:
        return text
    return f"{text} Default: {','.join(field.default) if isinstance(field.default, tuple) else field.default}."


def read_recipe(path: Path) -> dict[str, Any]:
    """The options that a recipe file sets."""
    try:
        return options_in(read_regular(path, _LARGEST_RECIPE).decode())
    except FileNotFoundError:
        raise UserError(
            f"Recipe {str(path)!r} does not exist; give a .toml file, or leave it out and use options."
        ) from None
    except (
        OSError,
        ValueError,
        RecursionError,
    ) as error:  # no UTF-8, no TOML, brackets within brackets
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"Recipe {shortened(str(path))} cannot be read ({reason}); it must be a TOML file of options."
        ) from None


def options_in(text: str) -> dict[str, Any]:
    """The options of a recipe as TOML; those that older ones have, and that are gone, are left out."""
    options = {
        name.replace("-", "_"): value for name, value in tomllib.loads(text).items()
    }
    options.pop("keep_layers", None)
    return options


def is_plain_text(text: str) -> bool:
    """Whether a text can be in a file and name one: UTF-8, no NUL, not too long."""
    return (
        len(text) <= _LONGEST_TEXT
        and "\0" not in text
        and not any("\ud800" <= letter <= "\udfff" for letter in text)
    )


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML, without unset options."""
    return tomli_w.dumps(
        {
            name: value
            for name, value in recipe.model_dump(mode="json").items()
            if value is not None
        }
    )


def named_folder(given: str | Path) -> Path:
    """The folder of that name; an empty name, as from an unset shell variable, is refused."""
    if not str(given).strip():
        raise UserError(
            f"The folder's name is empty ({str(given)!r}); give one with --out, or '.' for this folder."
        )
    if not is_plain_text(str(given)):
        raise UserError(
            f"The folder's name {shortened(str(given))} is no UTF-8, or too long; choose another."
        )
    path = Path(given)
    if (
        ".." in path.parts and not path.exists()
    ):  # or folders would be made on the way that it leads out of again
        return Path(os.path.normpath(path))
    return (
        path.absolute() if str(path).startswith("~") else path
    )  # polars would expand it to a home directory
