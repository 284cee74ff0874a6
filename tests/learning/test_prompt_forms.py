"""How a model is given a question: its own chat template, the job's, or none; and what is told where that cannot be."""

from __future__ import annotations

import pytest

from engine.config import ModelConfig, TaskConfig
from engine.config.model import unreplaced
from engine.learning.prompts import encode_prompt, set_template
from tests.learning.builders import make_tokenizer
from tests.tiny_models import byte_tokenizer

QUESTION = "1 + 2 =\nthen?"


def asked(tokenizer, template: str | None, question: str = QUESTION) -> str:
    set_template(tokenizer, template, question)
    return tokenizer.decode(encode_prompt(tokenizer, question).tolist())


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (None, f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"),
        ("chat", f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"),
        ("plain", QUESTION),
        ("Q: {prompt}\nA:", f"Q: {QUESTION}\nA:"),
        ("{prompt}", QUESTION),
        ('{% "\\ {{ é 🙂 {prompt} }} %}\n', f'{{% "\\ {{{{ é 🙂 {QUESTION} }}}} %}}\n'),
    ],
    ids=["default", "chat", "plain", "text", "bare", "signs of the template language"],
)
def test_a_question_is_put_as_the_job_says(template: str | None, text: str) -> None:
    assert asked(byte_tokenizer(), template) == text


def test_what_a_tokenizer_puts_before_any_text_comes_once() -> None:
    plain, ours, doubled = make_tokenizer(), make_tokenizer(), make_tokenizer()
    set_template(ours, "{prompt}=", "1")
    set_template(doubled, "<bos>{prompt}=", "1")
    expected = plain.encode("1+2=")
    assert expected[0] == plain.bos_token_id
    assert encode_prompt(ours, "1+2").tolist() == encode_prompt(doubled, "1+2").tolist() == expected


def test_the_jobs_template_is_saved_with_the_tokenizer(tmp_path) -> None:
    tokenizer = byte_tokenizer()
    set_template(tokenizer, "Q: {prompt}\nA:", QUESTION)
    tokenizer.save_pretrained(tmp_path)
    again = type(tokenizer).from_pretrained(tmp_path)
    assert encode_prompt(again, QUESTION).tolist() == encode_prompt(tokenizer, QUESTION).tolist()


def test_the_log_shows_how_the_model_is_asked() -> None:
    assert (
        set_template(byte_tokenizer(), "Q: {prompt}", "1") == "the model is asked with a chat template, such as 'Q: 1'"
    )
    assert set_template(byte_tokenizer(), "plain", "1") == "the model is asked in plain text, such as '1'"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0]['content'] ",
        "{{ raise_exception('only tools') }}",
        "{{ messages[7]['content'] }}",
        "{% for m in messages.user %}{{ m + 1 }}{% endfor %}{{ nothing.at.all }}",
    ],
    ids=["broken", "it refuses", "no such message", "undefined"],
)
def test_a_chat_template_that_fails_is_told_with_what_can_be_done(template: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(
        ValueError, match=r"model\.source: its chat template cannot be used \(.*allowed: model\.prompt_t"
    ):
        set_template(tokenizer, None, QUESTION)
    set_template(tokenizer, "plain", QUESTION)


@pytest.mark.parametrize(
    "template",
    ["hello", "{{ messages[0]['content']['text'] }}:", "{% for m in messages[1:] %}{{ m['content'] }}{% endfor %}!"],
)
def test_a_chat_template_that_leaves_the_question_out_is_refused(template: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=r"model\.source: its chat template leaves the question out: .*allowed: m"):
        set_template(tokenizer, None, QUESTION)
    set_template(tokenizer, "plain", QUESTION)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0]['content'] | trim }}",
        "{{ messages | tojson }}",
        "{{ messages[0]['content'] | upper }}",
        "{{ messages[0]['content'] | e }}",
    ],
)
def test_a_chat_template_may_strip_and_escape_what_it_is_given(template: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    assert "the model is asked with a chat template" in set_template(tokenizer, None, '  is "1 < 2" & \\ so?\n')


def test_a_chat_template_that_is_asked_for_must_be_there() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(
        ValueError, match=r"model\.prompt_template chat: the model's tokenizer has no chat template; allowed"
    ):
        set_template(tokenizer, "chat", QUESTION)


@pytest.mark.parametrize("template", ["Q:", "{prompt} {prompt}", "", "{question}"])
def test_a_template_without_one_place_for_the_prompt_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"must be chat, plain, or hold \{prompt\} once"):
        ModelConfig(source="a/b", prompt_template=template)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("Q: {prompt} {nope}", "{nope}"),
        ("{}{prompt}{q} {q}", "{}, {q}"),
        ("{{prompt}}", "the outer braces of {{prompt}}"),
        ('{prompt} Answer as {"answer": 5} or {"a": {"b": []}}.', None),
        (r"{prompt} within \boxed{answer}, \boxed{}, $\frac{a}{b}$, $x^{n}$, $x_{i}$.", None),
        ("{prompt}", None),
        (None, None),
    ],
    ids=["a name", "several", "doubled", "JSON", "LaTeX", "alone", "none"],
)
def test_what_looks_like_a_field_is_named_at_launch_and_given_to_the_model_as_it_stands(
    template: str | None, told: str | None
) -> None:
    model, task = ModelConfig(source="a/b", prompt_template=template), TaskConfig(prompt_template=template)
    rest = f"prompt_template: {told} reaches the model as it stands; only {{prompt}} is replaced"
    assert unreplaced(model, task) == ([f"model.{rest}", f"task.{rest}"] if told else [])
    if template is not None:
        assert asked(byte_tokenizer(), template) == template.replace("{prompt}", QUESTION)


def test_the_small_builtin_model_knows_one_form() -> None:
    with pytest.raises(ValueError, match="prompt_template has no meaning for builtin:tiny"):
        ModelConfig(prompt_template="plain")
