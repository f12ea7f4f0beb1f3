"""The form of every list of ours that is read back, checked at this one place.

A folder may come from anybody, and a seal only says that nothing was changed since: an index, a manifest or a marker
that holds something else than a run writes is refused with the entry that is wrong.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

DETECTION_VERSION = 4
"""Of the folder that `anchorscope detect` writes; raised as `SCHEMA_VERSION` is."""
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
FileName = Annotated[str, Field(pattern=r"^[^/\x00]+$", max_length=200)]


class Form(BaseModel):
    """Entries that readers rely on; a record may have more."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())


class _Facts(Form):
    sha256: Sha256
    size: Count = 0


class _MadeFrom(Form):
    epoch: int
    options: dict[str, Any]
    libraries: dict[str, str]
    parents: dict[str, str]


class _Step(Form):
    model_config = ConfigDict(strict=True, extra="forbid")

    key: str
    made_from: _MadeFrom
    files: dict[str, _Facts]
    seconds: Seconds
    peak_memory_mb: dict[str, float]
    large: bool = False
    dropped: bool = False


class _Notes(Form):
    recipe: str = ""
    published: str = ""
    batch_tokens: Annotated[int, Field(ge=1)] = 1


class _Steps(Form):
    steps: dict[str, _Step]
    notes: _Notes


class _Index(_Steps):
    marker: str
    results: dict[str, _Facts]
    arriving: dict[str, _Facts]
    leaving: list[str]
    events: list[str]


class _Model(Form):
    name: str
    source: str = ""
    n_layers: Annotated[int, Field(ge=1, le=100_000)]
    d_model: Count = 0
    parameters: Count
    random_weights: bool
    fingerprint: str
    tokenizer: str = ""
    dtype: str


class _Counts(Form):
    __pydantic_extra__: dict[str, Count]

    dataset: str


class _RunStep(Form):
    seconds: Seconds


class TemplateForm(Form):
    """The prompt around a question."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: str
    head: str
    tail: str
    answer_lead: str
    tokenizer_adds: bool
    first_token: Count | None = None


class _Run(Form):
    model: _Model
    counts: list[_Counts] = []
    reference_layers: dict[str, list[Count]]
    unavailable: list[dict[str, str]] = []
    facts: dict[str, str] = {}
    warnings: list[str] = []
    events: list[str] = []
    inputs: dict[str, str] = {}
    versions: dict[str, str] = {}
    template: TemplateForm | None = None
    for_detectors: bool = False
    elapsed_seconds: Seconds = 0.0
    steps: list[_RunStep] = []
    index: _Steps | None = None

    @model_validator(mode="after")
    def check_layers(self) -> "_Run":
        depth = self.model.n_layers
        for name, layers in self.reference_layers.items():
            if max(layers, default=0) >= depth:
                raise ValueError(f"{name} has a layer that the model has not")
        return self


class _Compared(Form):
    run: str
    folder: str = ""
    model: dict[str, Any] = {}
    datasets: list[str] = []
    used: dict[str, Count | None] = {}


class _Difference(Form):
    text: str


class _Comparison(Form):
    answer: list[str] = []
    runs: list[_Compared]
    differences: list[_Difference] = []
    command: str = ""


class _Threshold(Form):
    risk: Share
    coverage: Share
    probability: Share | None


class _Saved(Form):
    path: str
    auroc: dict[str, Annotated[list[float | None], Field(min_length=3, max_length=3)]]
    thresholds: list[_Threshold]
    passes: int


class _Detection(Form):
    version: int = 0
    model: str = ""
    answer: str = ""
    trust: str = ""
    warnings: list[str] = []
    saved: dict[FileName, _Saved] = {}
    recommended: str | None = None
    command: str = ""

    @model_validator(mode="after")
    def check_entries(self) -> "_Detection":
        """Folders of earlier versions lack some entries; they are listed, and made again."""
        shown = {"model", "answer", "trust", "warnings"}
        needed = {*shown, "saved", "recommended", "sha256"}
        if self.version == DETECTION_VERSION and needed - self.model_fields_set:
            raise ValueError("entries are missing")
        return self


class _Failure(Form):
    key: str
    line: str


class _Study(Form):
    name: str
    runs: list[str]
    failed: dict[str, _Failure]


_FORMS: dict[str, type[Form]] = {
    "index.json": _Index,
    "manifest.json": _Run,
    "comparison.json": _Comparison,
    "detection.json": _Detection,
    "study.json": _Study,
}


def check_form(file: str, record: dict[str, Any]) -> None:
    """Raises `ValueError` that names the first entry which is missing or holds something else."""
    check(_FORMS[file], record)


def check(form: type[Form], record: dict[str, Any]) -> None:
    try:
        form.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its entries"
        raise ValueError(f"{where}: {first['msg'].lower()}") from None
