"""Hugging Face architectures, small and with random weights.

Text, images and sound, encoders and decoders.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from zoo.specimen import Case, Specimen
from zoo.torchvision_models import import_torchvision

WIDTH = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
VOCABULARY = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**WIDTH, **VOCABULARY, "intermediate_size": 128, "max_position_embeddings": 64}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {**WIDTH, "intermediate_size": 128, "image_size": 64, "patch_size": 16}
GPT2 = {
    "vocab_size": 100,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
}
DISTIL = {
    "dim": 64,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 128,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 3, "num_heads": 4, "vocab_size": 100}
ENCODER = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128}
BART = {
    **ENCODER,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 128,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
# Dropping layers and masking time steps are off: they draw from generators of their own.
WAV2VEC2 = {
    **WIDTH,
    "intermediate_size": 128,
    "conv_dim": [32] * 3,
    "conv_stride": [5, 4, 4],
    "conv_kernel": [10, 4, 4],
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 32,
    "layerdrop": 0.0,
    "apply_spec_augment": False,
}
PYRAMID = {"hidden_sizes": [16, 32, 64], "depths": [1, 1, 2]}
SWIN = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
SEGFORMER = {
    "hidden_sizes": [16, 32, 32, 64],
    "depths": [1] * 4,
    "decoder_hidden_size": 32,
    "num_attention_heads": [1, 2, 2, 4],
}
MOBILEVIT = {
    "image_size": 64,
    "hidden_sizes": [32, 48, 64],
    "neck_hidden_sizes": [8, 16, 16, 24, 32, 48, 64],
}


def tokens() -> Tensor:
    """Return two sentences, the second padded with zeros."""
    sentences = torch.randint(5, 100, (2, 16), generator=torch.Generator().manual_seed(1))
    sentences[1, 12:] = 0
    return sentences


def images() -> Tensor:
    """Return two images of 64 x 64."""
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def spectrum() -> Tensor:
    """Return two spectrograms."""
    return torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(1))


def sound() -> Tensor:
    """Return two sounds of 1,600 samples."""
    return torch.randn(2, 1600, generator=torch.Generator().manual_seed(1))


# Model, configuration, its settings and the input.
ENCODERS: list[tuple[str, str, dict[str, Any], Callable[[], Tensor]]] = [
    ("AlbertModel", "AlbertConfig", {**TEXT, "embedding_size": 32}, tokens),
    ("BeitForImageClassification", "BeitConfig", IMAGE, images),
    ("BertForMaskedLM", "BertConfig", TEXT, tokens),
    ("BertForSequenceClassification", "BertConfig", TEXT, tokens),
    ("BertModel", "BertConfig", TEXT, tokens),
    ("CLIPVisionModel", "CLIPVisionConfig", IMAGE, images),
    ("ConvNextForImageClassification", "ConvNextConfig", {**PYRAMID, "num_stages": 3}, images),
    (
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        tokens,
    ),
    ("DeiTForImageClassification", "DeiTConfig", IMAGE, images),
    ("Dinov2ForImageClassification", "Dinov2Config", IMAGE, images),
    ("DistilBertForSequenceClassification", "DistilBertConfig", DISTIL, tokens),
    ("DistilBertModel", "DistilBertConfig", DISTIL, tokens),
    ("ElectraForSequenceClassification", "ElectraConfig", {**TEXT, "embedding_size": 32}, tokens),
    ("MPNetModel", "MPNetConfig", TEXT, tokens),
    ("MobileViTForImageClassification", "MobileViTConfig", MOBILEVIT, images),
    (
        "ModernBertForSequenceClassification",
        "ModernBertConfig",
        {**TEXT, "cls_token_id": 1, "sep_token_id": 2},
        tokens,
    ),
    (
        "ResNetForImageClassification",
        "ResNetConfig",
        {**PYRAMID, "embedding_size": 16, "layer_type": "basic"},
        images,
    ),
    ("RobertaModel", "RobertaConfig", TEXT, tokens),
    ("SegformerForImageClassification", "SegformerConfig", SEGFORMER, images),
    ("SiglipVisionModel", "SiglipVisionConfig", IMAGE, images),
    ("SwinForImageClassification", "SwinConfig", SWIN, images),
    ("T5EncoderModel", "T5Config", T5, tokens),
    ("ViTForImageClassification", "ViTConfig", IMAGE, images),
    ("ViTModel", "ViTConfig", IMAGE, images),
    ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", WAV2VEC2, sound),
    (
        "WhisperEncoder",
        "WhisperConfig",
        {**ENCODER, "num_mel_bins": 16, "max_source_positions": 32, "pad_token_id": 0},
        spectrum,
    ),
    ("XLMRobertaForSequenceClassification", "XLMRobertaConfig", TEXT, tokens),
]
# All of them take tokens.
DECODERS: list[tuple[str, str, dict[str, Any]]] = [
    ("BartModel", "BartConfig", BART),
    (
        "BloomForCausalLM",
        "BloomConfig",
        {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100},
    ),
    ("FalconForCausalLM", "FalconConfig", {**WIDTH, "vocab_size": 100}),
    ("GPT2ForSequenceClassification", "GPT2Config", {**GPT2, "pad_token_id": 0}),
    ("GPT2LMHeadModel", "GPT2Config", GPT2),
    ("GPT2Model", "GPT2Config", GPT2),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT),
    ("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 16}),
    ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    ("LlamaForSequenceClassification", "LlamaConfig", GROUPED),
    (
        "MambaForCausalLM",
        "MambaConfig",
        {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 100, "state_size": 8},
    ),
    ("MistralForCausalLM", "MistralConfig", GROUPED),
    ("MixtralForCausalLM", "MixtralConfig", {**GROUPED, "num_local_experts": 4}),
    (
        "OPTForCausalLM",
        "OPTConfig",
        {
            **WIDTH,
            "ffn_dim": 128,
            "vocab_size": 100,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 64,
        },
    ),
    ("Phi3ForCausalLM", "Phi3Config", GROUPED),
    ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 16}),
]
# By default, the first and the last layer of these share their weights, so there is nothing to cut.
TIED = (
    "BloomForCausalLM",
    "FalconForCausalLM",
    "GPT2LMHeadModel",
    "GemmaForCausalLM",
    "MambaForCausalLM",
    "OPTForCausalLM",
)
# Known: torch's meta device has the grouped product of the experts for bfloat16 only.
REFUSED = ("MixtralForCausalLM", "MixtralForCausalLM, use_cache=False")


def list_architectures() -> list[Specimen]:
    """Return all architectures, by name.

    Those with a cache are there with it and without it, Llama also without fused attention.
    """
    specimens = [
        _make_specimen(model, model, config, settings, make_input)
        for model, config, settings, make_input in ENCODERS
    ]
    for model, config, settings in DECODERS:
        variants: dict[str, dict[str, Any]] = {"": {}, ", use_cache=False": {"use_cache": False}}
        if model in TIED:
            variants[", tie_word_embeddings=False"] = {"tie_word_embeddings": False}
        for suffix, changes in variants.items():
            specimens.append(
                _make_specimen(model + suffix, model, config, settings | changes, tokens)
            )
    eager = GROUPED | {"attn_implementation": "eager"}
    name = "LlamaForCausalLM, eager attention"
    specimens.append(_make_specimen(name, "LlamaForCausalLM", "LlamaConfig", eager, tokens))
    return sorted(specimens, key=lambda specimen: specimen.name)


def _make_specimen(
    name: str, model: str, config: str, settings: dict[str, Any], make_input: Callable[[], Tensor]
) -> Specimen:
    def build() -> Case:
        transformers = _import_transformers()
        module = transformers
        if model == "WhisperEncoder":
            # The only one that is not exported.
            module = import_module("transformers.models.whisper.modeling_whisper")
        torch.manual_seed(0)
        network = getattr(module, model)(getattr(transformers, config)(**settings))
        batch = make_input()
        # The sample has other values than the batch, so that a constant kept from it would show.
        return Case(network, {"inputs": torch.zeros_like(batch)}, (batch,))

    return Specimen(name, "Hugging Face", whole=build, small=build)


def _import_transformers() -> Any:
    # It imports torchvision, too.
    import_torchvision()
    transformers = import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    return transformers
