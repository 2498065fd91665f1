/* Rotary frequency tables: one function per kind, all in double. */
#include "nn/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

static const char *const kinds[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"};

bool nb_rope_type_known(nb_str type)
{
    for (size_t i = 0; i < NB_COUNT(kinds); i++)
        if (nb_str_is(type, kinds[i])) return true;
    return false;
}

static bool is(const nb_rope_config *r, const char *kind) { return strcmp(r->type, kind) == 0; }

int32_t nb_rope_pairs(const nb_rope_config *r, int32_t head_dim)
{
    if (is(r, "proportional") || r->partial <= 0 || r->partial >= 1) return head_dim / 2;
    return (int32_t)(head_dim * r->partial) / 2;
}

static double base_freq(double theta, int32_t i, int32_t d) { return pow(theta, -2.0 * i / d); }

/* Wavelengths below orig/high stay, those above orig/low are divided, between them the two blend linearly in
 * orig/wavelength. */
static double llama3_freq(const nb_rope_config *r, double f)
{
    double wave = 2 * PI / f;
    if (wave < r->original_max / r->high_freq_factor) return f;
    if (wave > r->original_max / r->low_freq_factor) return f / r->factor;
    double s = (r->original_max / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return f * ((1 - s) / r->factor + s);
}

/* m(s, t) of YaRN. */
static double yarn_mscale(double s, double t) { return s > 1 ? 0.1 * t * log(s) + 1 : 1; }

static double yarn_factor(const nb_rope_config *r)
{
    if (r->attention_factor > 0) return r->attention_factor;
    if (r->mscale > 0 && r->mscale_all_dim > 0)
        return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
    return yarn_mscale(r->factor, 1);
}

/* The pair index (as a real number) whose wavelength turns `turns` times within the original context. */
static double yarn_dim(const nb_rope_config *r, int32_t d, double turns)
{
    return d * log(r->original_max / (turns * 2 * PI)) / (2 * log(r->theta));
}

static void yarn_table(const nb_rope_config *r, int32_t d, float *freq)
{
    double lo = yarn_dim(r, d, r->beta_fast), hi = yarn_dim(r, d, r->beta_slow);
    if (r->truncate) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = fmin(fmax(lo, 0), d - 1);
    hi = fmin(fmax(hi, 0), d - 1);
    if (lo == hi) hi += 0.001;
    for (int32_t i = 0; i < d / 2; i++) {
        double f = base_freq(r->theta, i, d);
        double ramp = fmin(fmax((i - lo) / (hi - lo), 0), 1);
        freq[i] = (float)(f / r->factor * ramp + f * (1 - ramp));
    }
}

static nb_status longrope_table(const nb_rope_config *r, int32_t d, double length, float *freq, double *factor,
                                nb_error *err)
{
    const double *list = length > r->original_max ? r->long_factor : r->short_factor;
    if (!list || r->n_factor < d / 2)
        return nb_fail(err, NB_E_INVALID, "rope: longrope has %d factors for %d pairs", (int)r->n_factor, (int)(d / 2));
    for (int32_t i = 0; i < d / 2; i++) {
        if (!(list[i] > 0)) return nb_fail(err, NB_E_INVALID, "rope: longrope factor %d is %g", (int)i, list[i]);
        freq[i] = (float)(base_freq(r->theta, i, d) / list[i]);
    }
    double s = r->factor > 0 ? r->factor : r->max_position / r->original_max;
    *factor = r->attention_factor > 0 ? r->attention_factor : s > 1 ? sqrt(1 + log(s) / log(r->original_max)) : 1;
    return NB_OK;
}

/* The fields that a kind divides by or takes the logarithm of. */
static nb_status check(const nb_rope_config *r, nb_error *err)
{
    bool scaled = is(r, "linear") || is(r, "dynamic") || is(r, "llama3") || is(r, "yarn");
    if (!(r->theta > 1) || !isfinite(r->theta))
        return nb_fail(err, NB_E_INVALID, "rope: rope_theta is %g, must be above 1", r->theta);
    if (scaled && !(r->factor >= 1 && isfinite(r->factor)))
        return nb_fail(err, NB_E_INVALID, "rope: factor is %g, must be 1 or more", r->factor);
    if ((is(r, "llama3") || is(r, "yarn") || is(r, "longrope")) && !(r->original_max > 1 && isfinite(r->original_max)))
        return nb_fail(err, NB_E_INVALID, "rope: original_max_position_embeddings is %g", r->original_max);
    if (is(r, "llama3") && !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return nb_fail(err, NB_E_INVALID, "rope: low_freq_factor is %g, high_freq_factor is %g", r->low_freq_factor,
                       r->high_freq_factor);
    if (is(r, "yarn") && !(r->beta_fast > 0 && r->beta_slow > 0))
        return nb_fail(err, NB_E_INVALID, "rope: beta_fast is %g, beta_slow is %g", r->beta_fast, r->beta_slow);
    return NB_OK;
}

nb_status nb_rope_table(const nb_rope_config *r, int32_t head_dim, double length, float *freq, double *factor,
                        nb_error *err)
{
    nb_status s = check(r, err);
    if (s != NB_OK) return s;
    int32_t pairs = nb_rope_pairs(r, head_dim), d = 2 * pairs;
    double theta = r->theta;
    if (d == 0) return nb_fail(err, NB_E_INVALID, "rope: no channel of a head of %d is rotated", (int)head_dim);
    *factor = 1;
    if (is(r, "yarn")) {
        yarn_table(r, d, freq);
        *factor = yarn_factor(r);
        return NB_OK;
    }
    if (is(r, "longrope")) return longrope_table(r, d, length, freq, factor, err);
    if (is(r, "dynamic") && d > 2 && length > r->max_position && r->max_position > 0)
        theta *= pow(r->factor * length / r->max_position - (r->factor - 1), d / (d - 2.0));
    int32_t live = pairs;
    if (is(r, "proportional") && r->partial > 0 && r->partial < 1) live = (int32_t)(r->partial * head_dim / 2);
    for (int32_t i = 0; i < pairs; i++) {
        double f = base_freq(theta, i, d);
        if (is(r, "linear")) f /= r->factor;
        if (is(r, "llama3")) f = llama3_freq(r, f);
        if (is(r, "proportional")) f = i < live ? f / (r->factor > 0 ? r->factor : 1) : 0;
        freq[i] = (float)f;
    }
    return NB_OK;
}
