/* Architectures that are known by name: they can be imported, shown and exported. Their tensors are not listed, so that
 * roles follow from names and shapes, and the default policy of specs/create.md 5.1 decides. One that is described gets
 * a file of its own and leaves this list. specs/architectures.md 2. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default tied[] = {{"tie_word_embeddings", 1}, {NULL, 0}};

const nb_arch nb_arch_listed[NB_ARCH_LISTED] = {
    {.name = "ministral3", .ids = "Ministral3ForCausalLM|ministral3", .window = NB_WINDOW_TYPES},
    {.name = "mistral3", .ids = "Mistral3ForConditionalGeneration|mistral3", .window = NB_WINDOW_TYPES},
    {.name = "mixtral", .ids = "MixtralForCausalLM|mixtral", .window = NB_WINDOW_TYPES},
    {.name = "glm4_moe", .ids = "Glm4MoeForCausalLM|glm4_moe", .window = NB_WINDOW_TYPES},
    {.name = "glm_moe_dsa", .ids = "GlmMoeDsaForCausalLM|glm_moe_dsa", .window = NB_WINDOW_TYPES},
    {.name = "deepseek_v2", .ids = "DeepseekV2ForCausalLM|deepseek_v2", .window = NB_WINDOW_TYPES},
    {.name = "deepseek_v3", .ids = "DeepseekV3ForCausalLM|deepseek_v3|kimi_k2", .window = NB_WINDOW_TYPES},
    {.name = "deepseek_v32", .ids = "DeepseekV32ForCausalLM|deepseek_v32", .window = NB_WINDOW_TYPES},
    {.name = "deepseek_v4", .ids = "DeepseekV4ForCausalLM|deepseek_v4", .window = NB_WINDOW_TYPES},
    {.name = "kimi_linear", .ids = "KimiLinearForCausalLM|kimi_linear", .window = NB_WINDOW_TYPES},
    {.name = "granitemoehybrid", .ids = "GraniteMoeHybridForCausalLM|granitemoehybrid", .window = NB_WINDOW_TYPES},
    {.name = "granitemoeshared", .ids = "GraniteMoeSharedForCausalLM|granitemoeshared", .window = NB_WINDOW_TYPES},
    {.name = "lfm2", .ids = "Lfm2ForCausalLM|lfm2", .window = NB_WINDOW_TYPES},
    {.name = "lfm2_moe", .ids = "Lfm2MoeForCausalLM|lfm2_moe", .window = NB_WINDOW_TYPES},
    {.name = "afmoe", .ids = "AfmoeForCausalLM|afmoe", .window = NB_WINDOW_TYPES},
    {.name = "mimo_v2_flash", .ids = "MiMoV2FlashForCausalLM|mimo_v2_flash", .window = NB_WINDOW_TYPES},
    {.name = "step3p5", .ids = "Step3p5ForCausalLM|step3p5", .window = NB_WINDOW_TYPES},
    {.name = "minimax_m2", .ids = "MiniMaxM2ForCausalLM|minimax_m2", .window = NB_WINDOW_TYPES},
    {.name = "bailing_moe",
     .ids = "BailingMoeForCausalLM|BailingMoeV2ForCausalLM|bailing_moe",
     .window = NB_WINDOW_TYPES},
    {.name = "olmo2", .ids = "Olmo2ForCausalLM|olmo2", .window = NB_WINDOW_TYPES},
    {.name = "olmo3", .ids = "Olmo3ForCausalLM|olmo3", .window = NB_WINDOW_TYPES},
    {.name = "olmoe", .ids = "OlmoeForCausalLM|olmoe", .window = NB_WINDOW_TYPES},
    {.name = "apertus", .ids = "ApertusForCausalLM|apertus", .window = NB_WINDOW_TYPES},
    {.name = "exaone4", .ids = "Exaone4ForCausalLM|exaone4", .window = NB_WINDOW_TYPES},
    {.name = "hunyuan_v1_dense", .ids = "HunYuanDenseV1ForCausalLM|hunyuan_v1_dense", .window = NB_WINDOW_TYPES},
    {.name = "hunyuan_v1_moe", .ids = "HunYuanMoEV1ForCausalLM|hunyuan_v1_moe", .window = NB_WINDOW_TYPES},
    {.name = "ernie4_5", .ids = "Ernie4_5ForCausalLM|ernie4_5", .window = NB_WINDOW_TYPES},
    {.name = "ernie4_5_moe", .ids = "Ernie4_5_MoeForCausalLM|ernie4_5_moe", .window = NB_WINDOW_TYPES},
    {.name = "seed_oss", .ids = "SeedOssForCausalLM|seed_oss", .window = NB_WINDOW_TYPES},
    {.name = "mellum", .ids = "MellumForCausalLM|mellum", .window = NB_WINDOW_TYPES},
    {.name = "gemma", .ids = "GemmaForCausalLM|gemma", .window = NB_WINDOW_TYPES, .defaults = tied},
    {.name = "gemma2", .ids = "Gemma2ForCausalLM|gemma2", .window = NB_WINDOW_TYPES, .defaults = tied},
    {.name = "phi3", .ids = "Phi3ForCausalLM|phi3", .window = NB_WINDOW_TYPES},
    {.name = "qwen2_moe", .ids = "Qwen2MoeForCausalLM|qwen2_moe", .window = NB_WINDOW_TYPES},
    {.name = "cohere2", .ids = "Cohere2ForCausalLM|cohere2", .window = NB_WINDOW_TYPES, .defaults = tied},
};
