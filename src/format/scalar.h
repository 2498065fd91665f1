/* format/scalar: scalar codes that only nb_floats_decode reads. */
#ifndef NB_FORMAT_SCALAR_H
#define NB_FORMAT_SCALAR_H

#include "base/base.h"

float nb_e4m3fnuz_decode(uint8_t b); /* AMD: bias 8, 0x80 is NaN, no -0 */
float nb_e5m2fnuz_decode(uint8_t b); /* AMD: bias 16 */

#endif
