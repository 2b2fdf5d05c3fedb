/* Is what a submission wrote the answer? Pure: bytes in, a word out. Both sides are bounded by the
 * caller; time is proportional to their length (times its logarithm for unordered lines). */
#ifndef GRADE_COMPARE_H
#define GRADE_COMPARE_H

#include <stddef.h>

#include <cordon.h>

enum compare_kind {
    COMPARE_TRIMMED,   /* blanks at the ends of lines and empty lines at the end do not count */
    COMPARE_EXACT,     /* every byte counts */
    COMPARE_TOKEN,     /* only the words count, not the blanks between them */
    COMPARE_FLOAT,     /* words; numbers may differ by the tolerance, absolutely or relatively */
    COMPARE_UNORDERED, /* lines in any order, trimmed */
    COMPARE_CHECKER,   /* a program decides */
};

#define COMPARE_TOLERANCE 1e-6

struct compare {
    enum compare_kind kind;
    double tolerance;    /* COMPARE_FLOAT */
    const char *checker; /* COMPARE_CHECKER: borrowed from the text */
};

enum compare_answer {
    COMPARE_SAME,
    COMPARE_LAYOUT, /* the right words with other blanks or line ends */
    COMPARE_OTHER,
    COMPARE_FAILED, /* no memory */
};

/* "exact", "trimmed", "token", "float", "float:1e-9", "unordered", else the path of a checker. A
 * word that is nearly one of these and no file is refused. */
int compare_parse(const char *text, struct compare *ret, struct cordon_err *err);

/* why (of size why_size, may be NULL): where they differ first, one line, printable; empty when
 * they do not. */
enum compare_answer compare_bytes(const struct compare *c, const char *expected,
                                  size_t expected_len, const char *actual, size_t actual_len,
                                  char *why, size_t why_size);

#endif
