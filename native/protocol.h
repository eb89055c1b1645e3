/* The framed protocol between a host and the supervisor of one sandbox (tiltyard-init).
 *
 * A frame is a 12-byte header and a body, all integers little-endian:
 *
 *     u32 body length | u8 type | u8 flags | u16 zero | u32 id | body
 *
 * `id` names an execution or a request; the host chooses it and never reuses one. In a body a
 * string is `u32 length, bytes`; a list is `u32 count` and that many strings. The same description,
 * from the host's side, is in src/tiltyard/sandbox/protocol.py: change both together.
 */
#ifndef TILTYARD_PROTOCOL_H
#define TILTYARD_PROTOCOL_H

#define PROTOCOL_VERSION 1u
#define FRAME_HEADER_BYTES 12u
#define FRAME_BODY_BYTES_MAX (1024u * 1024u + 65536u) /* one chunk of 1 MiB and its fields */
#define CHUNK_BYTES_MAX (1024u * 1024u)

/* host to supervisor */
enum {
  FRAME_SPAWN = 1, /* u32 flags, limits, list argv, list env, string cwd, string stdin; -> EXIT */
  FRAME_FORK = 2,  /* u32 zygote's id, limits: a run forked from it; -> EXIT */
  FRAME_INPUT = 3, /* raw bytes for the execution's channel, or its standard input: see TAKEN */
  FRAME_KILL = 4,  /* id 0: every execution */
  FRAME_WRITE = 5, /* u32 mode, u32 append, string path, string bytes; -> DONE or ERROR */
  FRAME_READ = 6,  /* u64 offset, u32 bytes at most, string path; -> BYTES or ERROR */
  FRAME_LIST = 7,  /* u32 cursor, string path; -> ENTRIES or ERROR */
  FRAME_PING = 8,  /* -> PONG */
  FRAME_CLOSE_INPUT = 9, /* no body: its standard input ends after what was sent */
  FRAME_SIGNAL = 10,     /* u32 signal, u32 0: the main process's group, 1: all that it started */
  FRAME_RESIZE = 11,     /* u32 rows, u32 columns of its terminal */
  FRAME_STAT = 16,       /* u32 1 to follow a link, string path; -> STATUS or ERROR */
  FRAME_MKDIR = 17,      /* u32 mode, u32 1 with parents, string path; -> DONE or ERROR */
  FRAME_RENAME = 18,     /* u32 1 to replace, string from, string to; -> DONE or ERROR */
  FRAME_CHMOD = 19,      /* u32 mode, string path; -> DONE or ERROR */
  FRAME_SYMLINK = 20,    /* string target, string path; -> DONE or ERROR */
  FRAME_REMOVE = 21,     /* u32 cursor, u32 1 when recursive, string path; -> REMOVED or ERROR */
  FRAME_TREE_READ = 22,  /* u32 cursor, string directory; -> RECORDS or ERROR */
  FRAME_TREE_WRITE = 23, /* u32 cursor, u32 1 when all is here, string directory, records; -> DONE
                            or ERROR */
  FRAME_TREE_PUT = 24,   /* u32 cursor, u32 1 when it is the last, records; -> DONE or ERROR */
  FRAME_MORE = 25,       /* u32 cursor; -> what the request that began it was answered with */
  FRAME_END = 26,        /* u32 cursor: no more is wanted; no answer */
  FRAME_PAUSE = 40,      /* stops every program; -> DONE */
  FRAME_RELEASE = 42,    /* id: the group of an ended execution, whose counters are read; no answer */
  FRAME_RESUME = 41,     /* lets every program go on, also one that had stopped itself; -> DONE */
};

/* A request that may take long is answered in slices. `cursor` is a number below CURSORS_MAX which
 * the host is not using; while the answer says that there is more, MORE gets the next slice. An
 * ERROR ends a cursor, and so does beginning another request with its number. */
#define CURSORS_MAX 4u
#define SLICE_BYTES_MAX (256u * 1024u) /* of records or entries in one frame */
#define SLICE_RECORDS_MAX 512u         /* likewise */

/* records of a tree: u32 kind, then for RECORD_BYTES `string content`, and for the others u32 mode,
 * u64 size, u64 seconds of the last change, string path below the directory, string target (of a
 * link). A file's content follows it, as much as its size says. */
enum {
  RECORD_DIRECTORY = 1,
  RECORD_FILE = 2,
  RECORD_BYTES = 3,
  RECORD_LINK = 4,
  RECORD_SPECIAL = 5, /* a FIFO, socket, device or mount point; only from the supervisor */
};

/* limits: u32 wall_ms (0: none), u32 cpu_s (0: none), u64 output bytes at most, u32 open files,
 * u32 processes, u64 address-space bytes (0: none) */

/* flags of SPAWN */
enum {
  SPAWN_CHANNEL = 1, /* descriptor 3 is a stream socket, carried by INPUT and CHANNEL frames */
  SPAWN_ZYGOTE = 2,  /* descriptor 3 is the fork socket described in forks.c; trusted code only */
  /* Not together with the two above. Each adds its fields to the end of the body, in this order. */
  SPAWN_STREAM = 4, /* standard input is a pipe, carried by INPUT; the body's string is not used */
  SPAWN_PTY = 8,    /* u32 rows, u32 columns: a terminal, carried by INPUT and STDOUT */
  SPAWN_USER = 16,  /* string: a number, or a name in the sandbox's /etc/passwd */
  SPAWN_IDLE = 32,  /* u32 ms without output after which it is ended */
};

/* Of a standard input or a terminal, no more than this may be sent that TAKEN has not answered. */
#define INPUT_WINDOW_BYTES (64u * 1024u)

/* supervisor to host */
enum {
  FRAME_HELLO = 64,   /* u32 protocol version: the sandbox is complete */
  FRAME_STDOUT = 66,  /* raw bytes */
  FRAME_STDERR = 67,  /* raw bytes */
  FRAME_CHANNEL = 68, /* raw bytes; an empty body: the program closed its end */
  FRAME_EXIT = 69,    /* see executions.c; the last frame of an id, after all its output */
  FRAME_DONE = 70,    /* no body */
  FRAME_ERROR = 71,   /* u32 errno, string failing call; of a tree also string entry */
  FRAME_BYTES = 72,   /* u32 1 at the end of the file, string bytes */
  FRAME_ENTRIES = 73, /* u32 1 when there are more, u32 count, each: u32 mode, u64 size, string name */
  FRAME_PONG = 74,    /* no body */
  FRAME_TAKEN = 75,   /* u32 bytes of INPUT that were taken; no body: nobody reads any more */
  FRAME_STATUS = 80,  /* u32 mode, u32 uid, u32 gid, u32 hard links, u64 size, u64 seconds and
                         u32 nanoseconds of the last change, string target of a link */
  FRAME_RECORDS = 81, /* u32 1 when there are more, records */
  FRAME_REMOVED = 82, /* u32 1 when there is more, u64 how many names are removed so far */
};

/* flags of EXIT: why the supervisor ended it, when it did */
enum {
  EXIT_WALL = 1,
  EXIT_OUTPUT = 2,
  EXIT_KILLED = 4,
  EXIT_NOT_STARTED = 8,   /* the status field holds an errno; the body ends with the failing call */
  EXIT_DISK_FULL = 16,    /* the sandbox's disk had no block or inode left at the end */
  EXIT_INPUT = 32,        /* the host sent more than the program cared to read */
  EXIT_ZYGOTE_DIED = 64,  /* the run's zygote is gone: what the run did is not known */
  EXIT_IDLE = 128,        /* it wrote nothing for as long as it may be silent */
};

#endif
