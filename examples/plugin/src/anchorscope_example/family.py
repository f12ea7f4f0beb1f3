"""The layout of GLM-4: a norm before and after each part of a block, under names of its own."""

from anchorscope.models.families import Family

GLM4 = Family(
    name="GLM-4",
    model_types=("glm4",),
    norm_after_attention="post_self_attn_layernorm",
    norm_after_mlp="post_mlp_layernorm",
)
