/* The direct-verbs header of libmlx5. */
#include <infiniband/mlx5dv.h>
