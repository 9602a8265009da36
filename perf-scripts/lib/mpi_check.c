/* Sends messages around a ring of ranks and sums vectors over all ranks, and compares every
 * number. Prints one line on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* The number that a rank sends at a position. */
static int value(int rank, int at)
{
    return rank * 1000003 + at;
}

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "wrong data: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    /* Short, eager, and longer than any eager limit. */
    static const int lengths[] = {1, 1000, 300000};
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        int length = lengths[n];
        int *out = malloc(length * sizeof *out), *in = malloc(length * sizeof *in);
        require(out && in, "no memory");
        for (int at = 0; at < length; at++)
            out[at] = value(rank, at);
        MPI_Sendrecv(out, length, MPI_INT, next, 7, in, length, MPI_INT, previous, 7,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int at = 0; at < length; at++)
            require(in[at] == value(previous, at), "a message");
        MPI_Allreduce(out, in, length, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < length; at++)
            require(in[at] == size * (size - 1) / 2 * 1000003 + size * at, "a sum");
        free(out);
        free(in);
    }
    if (rank == 0)
        printf("checked on %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
