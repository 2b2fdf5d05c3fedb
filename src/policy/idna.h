/* Names in other scripts in their one canonical form: labels in xn--, as UTS 46 has it for the URL
 * standard (non-transitional; joiners and direction checked; hyphens and lengths left to whoever
 * reads names). Pure.
 *
 * What people write is converted (idna_to_ascii). What comes from programs has xn-- labels already:
 * they are only checked (idna_is_name). */
#ifndef POLICY_IDNA_H
#define POLICY_IDNA_H

#include <stdbool.h>
#include <stddef.h>

#define IDNA_WRITTEN_MAX 1024 /* bytes of a name as written; longer ones are refused */

/* Any byte beyond ASCII. */
bool idna_is_other(const char *text, size_t len);

/* UTF-8 to labels in lower case with dots, at most max bytes with the NUL. ASCII passes, whatever
 * it is, but nothing is mapped to ASCII other than letters, digits, hyphens and dots. Labels are
 * converted, not checked: idna_is_name has the last word. */
bool idna_to_ascii(const char *text, size_t len, char *ret, size_t max);

/* Every label of a name in lower case that begins with xn-- is one that the conversion makes, and
 * the directions of all labels agree. Labels `*` are passed over. */
bool idna_is_name(const char *name);

#endif
