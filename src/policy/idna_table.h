/* Tables of Unicode that names in other scripts need; made by tools/idna-table. For idna_*.c only.
 *
 * All constant and without pointers, so that nothing of it is touched before such a name appears.
 */
#ifndef POLICY_IDNA_TABLE_H
#define POLICY_IDNA_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define IDNA_POINT_BITS 21 /* a run: the first code point, above it the kind or number */

enum idna_kind {
    IDNA_DISALLOWED,
    IDNA_VALID,
    IDNA_IGNORED,
    IDNA_ADD,  /* mapped to itself plus the argument, which has a sign */
    IDNA_PAIR, /* capital and small letters in turn: the first, third... mapped to their next */
    IDNA_ONE,  /* mapped to idna_values[argument + distance from the first] */
    IDNA_MANY, /* mapped to the UTF-16 text that begins there in idna_pool and ends with 0 */
};

/* Sorted; the first begins behind ASCII. */
extern const uint32_t idna_runs[];
extern const size_t idna_n_runs;
extern const uint16_t idna_args[], idna_values[], idna_pool[];

enum idna_bidi {
    IDNA_BIDI_OTHER,
    IDNA_L,
    IDNA_R,
    IDNA_AL,
    IDNA_EN,
    IDNA_AN,
    IDNA_ES,
    IDNA_CS,
    IDNA_ET,
    IDNA_ON,
    IDNA_BN,
    IDNA_NSM,
};
enum idna_joining {
    IDNA_JOIN_U,
    IDNA_JOIN_L,
    IDNA_JOIN_R,
    IDNA_JOIN_D,
    IDNA_JOIN_T,
    IDNA_JOIN_C,
};

/* Of valid code points, ASCII too: combining class in the low byte, then 4 bits of direction, 3 of
 * joining, 1 for a mark. */
extern const uint32_t idna_class_runs[];
extern const size_t idna_n_class_runs;
extern const uint16_t idna_classes[];

/* Canonical compositions among valid code points, sorted by the composed one. Hangul is computed.
 */
struct idna_pair {
    uint32_t composed, first, second;
};
extern const struct idna_pair idna_pairs[];
extern const size_t idna_n_pairs;

#endif
