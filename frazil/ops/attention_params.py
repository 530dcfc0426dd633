"""The public spelling of attention's parameters, and its translation into ports and attributes.

Existing code spells masks, dropout and lengths in several ways, and FP8 attention in others: all spellings
are accepted everywhere, and one canonical form comes out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from ..enums import attention_implementation, diagonal_alignment
from ..errors import GraphError
from ..op import BOOL, Param

SCORES = "(B, Hq, Sq, Skv)"

MASKS = (
    Param("use_causal_mask", False, "bool", "Top-left alignment and right bound 0."),
    Param("use_causal_mask_bottom_right", False, "bool", "Bottom-right alignment and right bound 0."),
    Param("sliding_window_length", None, "int | None", "The same as diagonal_band_left_bound."),
    Param(
        "diagonal_alignment",
        diagonal_alignment.TOP_LEFT,
        "diagonal_alignment",
        "Position p of row i on the diagonal: i, or i + len_kv - len_q with each entry's own lengths.",
    ),
    Param(
        "diagonal_band_left_bound",
        None,
        "int | None",
        "w: keys j > p - w are visible, w of them up to the diagonal.",
    ),
    Param("diagonal_band_right_bound", None, "int | None", "r: keys j <= p + r are visible."),
    Param(
        "dropout",
        None,
        "tuple[Any, ...] | None",
        "(probability, seed tensor, offset tensor), or (mask tensor, scale tensor); backward also takes the "
        "inverse of the scale as a third, which it does not read.",
    ),
)
ALIASES = (
    Param("sliding_window", None, "int | None", "The same as diagonal_band_left_bound."),
    Param("left_bound", None, "int | None", "The same as diagonal_band_left_bound."),
    Param("right_bound", None, "int | None", "The same as diagonal_band_right_bound."),
    Param("fn", None, "Callable[..., Any] | None", "The same as score_mod."),
)
SCALE = Param(
    "attn_scale", None, "float | Any | None", "Factor of Q K^T, a number or a tensor; 1 where left out."
)
SCORE_MOD = Param(
    "score_mod",
    None,
    "Callable[..., Any] | None",
    f"(graph, score) -> score: elementwise operations on the scaled scores {SCORES}, before bias and masks.",
)
SCORE_MOD_BPROP = Param(
    "score_mod_bprop",
    None,
    "Callable[..., Any] | None",
    "(graph, gradient) -> gradient of score_mod; may use tensors that score_mod computed.",
)
IMPLEMENTATION = Param(
    "implementation",
    attention_implementation.AUTO,
    "attention_implementation",
    "Constrains the closed library's engine alone.",
)


def one_of(arguments: Mapping[str, Any], *names: str) -> Any:
    """The value of the one spelling that was given; None where none was.

    Raises
    ------
    GraphError
        Several were given and differ.
    """
    given = [(n, arguments[n]) for n in names if arguments.get(n) is not None]
    if any(v is not given[0][1] and v != given[0][1] for _, v in given):
        got = ", ".join(f"{n}={v}" for n, v in given)
        expected = "one spelling, or equal values"
        raise GraphError(
            "several spellings of one parameter differ", node=arguments["name"], got=got, expected=expected
        )
    return given[0][1] if given else None


def flag(arguments: Mapping[str, Any], name: str) -> bool:
    """A parameter that is True or False.

    Raises
    ------
    GraphError
        It is neither.
    """
    try:
        return bool(BOOL.convert(arguments[name]))
    except TypeError as error:
        got = repr(arguments[name])
        raise GraphError(
            f"{name} ({error})", node=arguments["name"], got=got, expected="True or False"
        ) from None


def band(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Alignment and bounds from all their spellings."""
    top, bottom = flag(arguments, "use_causal_mask"), flag(arguments, "use_causal_mask_bottom_right")
    right = one_of(arguments, "diagonal_band_right_bound", "right_bound")
    node = arguments["name"]
    if top and bottom:
        got = "use_causal_mask and use_causal_mask_bottom_right"
        raise GraphError("causal mask", node=node, got=got, expected="one of the two")
    if (top or bottom) and right is not None:
        causal = "use_causal_mask" if top else "use_causal_mask_bottom_right"
        got = f"{causal} and diagonal_band_right_bound={right}"
        raise GraphError(
            "causal mask", node=node, got=got, expected="one of the two: the flag is right bound 0"
        )
    try:
        alignment = diagonal_alignment(arguments["diagonal_alignment"])
    except ValueError:
        got = repr(arguments["diagonal_alignment"])
        raise GraphError(
            "diagonal_alignment", node=node, got=got, expected="TOP_LEFT or BOTTOM_RIGHT"
        ) from None
    if top and alignment is diagonal_alignment.BOTTOM_RIGHT:
        got = "use_causal_mask and diagonal_alignment=BOTTOM_RIGHT"
        raise GraphError(
            "causal mask", node=node, got=got, expected="use_causal_mask_bottom_right, or TOP_LEFT"
        )
    left = one_of(
        arguments, "diagonal_band_left_bound", "sliding_window_length", "sliding_window", "left_bound"
    )
    return {
        "alignment": diagonal_alignment.BOTTOM_RIGHT if bottom else alignment,
        "left_bound": left,
        "right_bound": 0 if top or bottom else right,
    }


def scale(arguments: Mapping[str, Any]) -> tuple[float, Any]:
    """The scale as a number, and as a tensor where it is one."""
    given = arguments["attn_scale"]
    if given is None:
        return 1.0, None
    if isinstance(given, Real) and not isinstance(given, bool):
        if not math.isfinite(given):
            raise GraphError("attn_scale", node=arguments["name"], got=given, expected="a finite number")
        return float(given), None
    if isinstance(given, (bool, str, bytes)):
        raise GraphError(
            "attn_scale", node=arguments["name"], got=repr(given), expected="a number or a tensor"
        )
    return 1.0, given


def dropout(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], float | None]:
    """Tensors of dropout by port, and its probability for the generated form.

    Raises
    ------
    GraphError
        Neither of the two forms.
    """
    given = arguments["dropout"]
    if given is None:
        return {}, None
    if not isinstance(given, Sequence) or len(given) not in (2, 3):
        expected = "(probability, seed, offset) or (mask, scale)"
        raise GraphError("dropout", node=arguments["name"], got=repr(given), expected=expected)
    if isinstance(given[0], Real):
        if len(given) != 3:
            got = f"{len(given)} values"
            raise GraphError(
                "dropout", node=arguments["name"], got=got, expected="(probability, seed, offset)"
            )
        return {"dropout_seed": given[1], "dropout_offset": given[2]}, float(given[0])
    # The third value of the backward's form is the inverse of the scale, which follows from it.
    return {"dropout_mask": given[0], "dropout_scale": given[1]}, None
