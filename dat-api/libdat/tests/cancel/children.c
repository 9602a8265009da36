/*
 * Children of fork(2) that end by exit(3), so that the library's exit handlers run, open an
 * adapter of their own, or start a program. The parent's connection passes messages after each.
 */
#include "cancel.h"

#include <sys/wait.h>

static void message(struct pair *pair)
{
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_EVD_HANDLE evds[] = {pair->received, pair->sent};
    DAT_EVENT event;
    DAT_COUNT more;

    OK(dat_ep_post_recv(pair->passive, 1, &pair->segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_send(pair->active, 1, &pair->segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    for (int at = 0; at < 2; at++) {
        OK(dat_evd_wait(evds[at], LONG, 1, &event, &more));
        HOLDS(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
    }
    HOLDS(IS_EMPTY(dat_evd_dequeue(pair->connections, &event)));
}

static void leave(void)
{
}

static void open_an_adapter(void)
{
    DAT_EVD_HANDLE errors = DAT_HANDLE_NULL;
    struct pair *pair;

    OK(dat_ia_open("mlx5_0", 8, &errors, &ia));
    OK(dat_pz_create(ia, &pz));
    pair = connected();
    message(pair);
    disconnect(pair);
    OK(dat_pz_free(pz));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static void become_a_program(void)
{
    execlp("true", "true", (char *)NULL);
    HOLDS(0);
}

static void start_a_shell(void)
{
    char line[8] = "";
    FILE *output = popen("echo one", "r");

    HOLDS(output != NULL && fgets(line, sizeof line, output) && strcmp(line, "one\n") == 0);
    HOLDS(pclose(output) == 0);
    HOLDS(system("true") == 0);
}

void children(void)
{
    static void (*const what[])(void) = {leave, open_an_adapter, become_a_program, start_a_shell};
    struct pair *pair = connected();

    for (size_t at = 0; at < sizeof what / sizeof *what; at++)
        for (int times = 0; times < 4; times++) {
            int status;
            pid_t child = fork();

            HOLDS(child >= 0);
            if (child == 0) {
                what[at]();
                exit(0);
            }
            message(pair);
            HOLDS(waitpid(child, &status, 0) == child);
            HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            message(pair);
        }
    start_a_shell();
    message(pair);
    disconnect(pair);
}
