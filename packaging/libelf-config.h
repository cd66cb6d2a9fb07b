/* What elfutils' configure would find in musl, for libelf alone. */
#define _GNU_SOURCE 1
#define PACKAGE_NAME "elfutils"
#define PACKAGE_VERSION "0"
#define HAVE_DECL_MEMPCPY 0
#define HAVE_DECL_MEMRCHR 1
#define HAVE_DECL_RAWMEMCHR 0
#define HAVE_DECL_POWEROF2 0
#define HAVE_DECL_REALLOCARRAY 1
#define HAVE_DECL_STRERROR_R 1
#define HAVE_STRERROR_R 1
#define HAVE_GCC_STRUCT 1
#define HAVE_VISIBILITY 1
#define STDC_HEADERS 1
#define N_(x) x
#define HAVE_ERR_H 1
#include <eu-config.h>
