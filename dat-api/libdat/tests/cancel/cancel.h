/* Shared by the parts of the program: see cancel.c. */
#define _GNU_SOURCE
#include "../support/version.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the program with the source line and the return code. */
#define EXPECT(call, wanted) expect(#call, __FILE__, __LINE__, (call), (wanted))
#define OK(call) EXPECT(call, DAT_SUCCESS)
#define HOLDS(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            printf("%s:%d: not %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

/* The type of DAT_QUEUE_EMPTY, with or without its class. */
#define IS_EMPTY(answer) (DAT_GET_TYPE(answer) == DAT_QUEUE_EMPTY)
#define IS_WAITED (DAT_CLASS_ERROR | DAT_INVALID_STATE | DAT_INVALID_STATE_EVD_WAITER)

/* A timeout in microseconds that no call here reaches. */
#define LONG 60000000

void expect(const char *what, const char *file, int line, DAT_RETURN answer, DAT_RETURN wanted);

extern DAT_IA_HANDLE ia;
extern DAT_PZ_HANDLE pz;

/* Two connected endpoints, their memory and their EVDs. */
struct pair {
    DAT_EVD_HANDLE requests, connections, sent, received;
    DAT_EP_HANDLE active, passive;
    DAT_PSP_HANDLE psp;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_TRIPLET segment;
    char memory[4096];
};
struct pair *connected(void);
void disconnect(struct pair *pair);

DAT_EVD_HANDLE software_evd(DAT_CNO_HANDLE cno);
void post(DAT_EVD_HANDLE evd);
void start(pthread_t *thread, void *(*run)(void *), void *argument);
void cancelled(pthread_t thread);
void until_waited(DAT_EVD_HANDLE evd);
/* Lets the other threads run for a time that differs from call to call. */
void dawdle(unsigned round);

void wait_evd(void);
void wait_cno(void);
void hold(void);
void agents(void);
void children(void);
