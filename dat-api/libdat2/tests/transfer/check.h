/* What C programs of the tests check with. A program ends at the first difference. */
#ifndef CHECK_H
#define CHECK_H

#include <dat2/udat.h>
#include <stdio.h>
#include <stdlib.h>

#define SECONDS(n) ((n) * 1000000u)

#define HOLDS(condition) \
    do { \
        if (!(condition)) { \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

/* The call returns this type and subtype. */
#define EXPECT(call, type, subtype) \
    do { \
        DAT_RETURN code_ = (call); \
        if (DAT_GET_TYPE(code_) != (DAT_UINT32)(type) || \
            DAT_GET_SUBTYPE(code_) != (DAT_UINT32)(subtype)) { \
            const char *major_ = "", *minor_ = ""; \
            dat_strerror(code_, &major_, &minor_); \
            printf("%s:%d: %s: %#x %s %s\n", __FILE__, __LINE__, #call, code_, major_, minor_); \
            exit(1); \
        } \
    } while (0)
#define OK(call) EXPECT(call, DAT_SUCCESS, DAT_NO_SUBTYPE)
#define UNSUPPORTED(call) EXPECT(call, DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE)

#endif
