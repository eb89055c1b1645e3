/* Becoming another user of the sandbox. */
#ifndef TILTYARD_USERS_H
#define TILTYARD_USERS_H

/* Becomes the user of a number, or of a name in the sandbox's own /etc/passwd, without other groups
 * and without capabilities; descriptors 0 to 2 become that user's too. Returns NULL, or what failed
 * with errno set. */
const char *become_user(const char *user);

#endif
