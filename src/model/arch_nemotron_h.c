/* Nemotron-H: Mamba2, attention without rope, latent experts. specs/architectures.md 7, specs/create.md 5.2.
 * Importable; its tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_ANY, "vision_model.|mlp1.|sound_encoder.|sound_projection.", NULL, NULL, NULL, NB_COND_NONE, NB_DO_KEEP,
     "vision or sound"},
    {NB_REQ_ANY, NULL, NULL, ".mixer.gate.weight|.mixer.conv1d.weight", NULL, NB_COND_NONE, NB_DO_KEEP,
     "router or convolution"},
    {NB_REQ_ANY, NULL, NULL, "embeddings.weight|lm_head.weight", NULL, NB_COND_NONE, NB_DO_EIGHT, "head: 8 bits"},
    {NB_REQ_FP4, NULL, ".mixer.q_proj.|.mixer.k_proj.|.mixer.v_proj.|.mixer.o_proj.", ".weight", NULL, NB_COND_NONE,
     NB_DO_EIGHT_BASE, "attention: 8 bits"},
    {NB_REQ_FP4, NULL, ".mixer.out_proj.|.mixer.down_proj.|.mixer.shared_experts.down_proj.", ".weight", NULL,
     NB_COND_MORE_BITS_OR_NO_LAYER, NB_DO_EIGHT_BASE, "sensitive: 8 bits"},
    {NB_REQ_FP4, NULL, ".mixer.experts.", "down_proj.weight", NULL, NB_COND_MORE_BITS_OR_NO_LAYER, NB_DO_EIGHT_BASE,
     "sensitive: 8 bits"},
    {NB_REQ_FP4, NULL, ".mixer.out_proj.|.mixer.down_proj.|.mixer.shared_experts.down_proj.", ".weight", NULL,
     NB_COND_NONE, NB_DO_BASE, "as requested"},
    {NB_REQ_FP4, NULL, ".mixer.experts.", "down_proj.weight", NULL, NB_COND_NONE, NB_DO_BASE, "as requested"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_nemotron_h = {
    .name = "nemotron_h",
    .ids = "NemotronHForCausalLM|NemotronH_Nano_VL_V2|NemotronH_Nano_Omni_Reasoning_V3|nemotron_h",
    .window = NB_WINDOW_NONE,
    .policy = policy,
};
