"""What `/v1/chat/completions` is asked and answers: OpenAI's form, with `truth`, `detector` and `risk` beside it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from anchorscope.serve.score_form import Form, Name, Risk, Truth

_Stop = Annotated[str, Field(min_length=1, max_length=100)]
_Zero = Annotated[float, Field(ge=0, le=0)]
_MASK = 2**63 - 1


class TextPart(Form):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class Message(Form):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]
    name: Name | None = Field(None, description="Not used.")

    @property
    def text(self) -> str:
        """The whole turn."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(Form):
    """What a stream tells beside its pieces."""

    include_usage: bool = False


class ChatRequest(Form):
    """A conversation to go on with."""

    model: Name = Field("default", description="The model's name or `default`.")
    messages: list[Message] = Field(min_length=1, max_length=1000)
    truth: bool = Field(
        False,
        description="Whether the answer is scored. Then `messages` is one user message, the "
        "question; it is asked in the detector's own prompt.",
    )
    detector: Name | None = Field(None, description="With `truth`: an id of `/v1/detectors`.")
    risk: Risk | None = Field(None, description="With `truth`: one of the detector's thresholds.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0, the likeliest tokens, where none is given.")
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31, description="Wins over `max_tokens`.")
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    n: Literal[1] | None = Field(None, description="One answer at a time.")
    user: Annotated[str, Field(max_length=1000)] | None = Field(None, description="Not used.")
    frequency_penalty: _Zero | None = None
    presence_penalty: _Zero | None = None
    logprobs: Literal[False] | None = None

    @property
    def longest(self) -> int | None:
        """Tokens that the answer may have."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wanted_seed(self) -> int | None:
        """As the engine takes it."""
        return None if self.seed is None else self.seed & _MASK


class AnswerMessage(BaseModel):
    """What the model wrote."""

    role: str = "assistant"
    content: str


class Choice(BaseModel):
    """The one answer."""

    index: int = 0
    message: AnswerMessage
    finish_reason: str
    truth: Truth | None = Field(None, description="Only where it was asked for.")


class Usage(BaseModel):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """An answer that is complete. Streams send the same in pieces, `truth` with the last one."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


def usage(prompt: int, new: int) -> dict[str, int]:
    """Tokens of a request."""
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def chunk(head: dict[str, Any], delta: dict[str, Any], reason: str | None, **others: Any) -> dict[str, Any]:
    """One piece of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **others}
    return {**head, "object": "chat.completion.chunk", "choices": [choice]}
