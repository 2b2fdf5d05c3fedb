/* Do bytes begin like an HTTP request? Pure; runs in the broker on what a client sends first, and
 * on the beginnings of bodies.
 *
 * What any server would take for a request has to be found here; whether it is a good one is for
 * httpwatch.h to say, and what is looser than that is refused. */
#ifndef NET_HTTPFIRST_H
#define NET_HTTPFIRST_H

#include <stdbool.h>
#include <stddef.h>

#define HTTPFIRST_MAX 16384 /* bytes a caller must be able to hold */

enum httpfirst { HTTPFIRST_UNSURE, HTTPFIRST_YES, HTTPFIRST_NO };

/* The first bytes of a connection. UNSURE: show more; there is no whole line yet, no server acts on
 * less, and *ret_pass bytes may pass. Keep them for the next look. With HTTPFIRST_MAX bytes it is
 * still UNSURE only within a first word that does not end: any of it may then be left out.
 * is_end: nothing more comes, never UNSURE. */
enum httpfirst httpfirst_read(const char *data, size_t len, bool is_end, size_t *ret_pass);

/* The beginning of a body. Ordinary text is not to be taken for a request: only what servers that
 * do not read bodies would take for one is. */
enum httpfirst httpfirst_read_body(const char *data, size_t len, bool is_end);

/* The first bytes a server sent to a client that speaks neither TLS nor HTTP as far as is known:
 * YES when they are an answer of one of the two. */
#define HTTPFIRST_ANSWER_MAX 7
enum httpfirst httpfirst_read_answer(const char *data, size_t len);

#endif
