"""The C code of the integration: one loop over classes and z-nodes per Runge–Kutta stage, from the packed terms."""

from jax_kernel.generator import Structure

TEMPLATE = """
#include <math.h>
#include <string.h>
enum {{ V = {classes}, Z = {nodes}, F = {fields} }};

void run(int steps, const double *restrict drive, const double *restrict h, double *restrict y, double *restrict k,
         double *restrict seen, const double *restrict rotation, const double *restrict damping,
         const double *restrict transfer, const double *restrict factor, const double *restrict coupling,
         const double *restrict weight, const double *restrict running, const double *A, const double *B) {{
  static double source[F][2][Z], rabi[F][2][Z];
  for (int n = 0; n < steps; n++) for (int stage = 0; stage < 5; stage++) {{
    const double a = A[stage], b = B[stage], step = h[n];
    memset(source, 0, sizeof source);
    for (int v = 0; v < V; v++) for (int z = 0; z < Z; z++) {{
      {sources}
    }}
    if (stage == 0) memcpy(seen + n * F * 2 * Z, source, sizeof source);
    for (int f = 0; f < F; f++) for (int part = 0; part < 2; part++) {{
      double sum[Z];
      for (int z = 0; z < Z; z++) sum[z] = drive[((n * 5 + stage) * F + f) * 2 + part];
      for (int q = 0; q < Z; q++) {{
        const double s = source[f][part][q];
        for (int z = 0; z < Z; z++) sum[z] += s * running[q * Z + z];
      }}
      memcpy(rabi[f][part], sum, sizeof sum);
    }}
    for (int v = 0; v < V; v++) for (int z = 0; z < Z; z++) {{
      {drives}
      {loads}
      {slopes}
      {updates}
    }}
  }}
}}
"""


def code(structure: Structure, classes: int, nodes: int) -> str:
    """The function `run`; `running` is transposed, (from node, to node)."""
    if structure.operators:
        raise ValueError("The loop must not have dense collapse operators.")

    def component(array: str, c: int) -> str:
        return f"{array}[({c} * V + v) * Z + z]"

    def lines(made) -> str:
        return "\n      ".join(made)

    every = range(structure.num_components)
    sources = []
    for p, (field, a, b) in enumerate(structure.pairs):
        parts = structure.element(a, b)
        if parts is not None:
            real, imaginary, sign = parts
            scale = f"coupling[{field}] * factor[{p}] * weight[v]"
            sources.append(f"source[{field}][0][z] -= {sign} * {scale} * {component('y', imaginary)};")
            sources.append(f"source[{field}][1][z] += {scale} * {component('y', real)};")
    drives = [
        f"const double d{p}_{part} = M_PI * factor[{p}] * rabi[{field}][{part}][z];"
        for p, (field, _, _) in enumerate(structure.pairs)
        for part in range(2)
    ]
    return TEMPLATE.format(
        classes=classes,
        nodes=nodes,
        fields=structure.num_fields,
        sources=lines(sources),
        drives=lines(drives),
        loads=lines(f"const double y{c} = {component('y', c)};" for c in every),
        slopes=lines(f"const double s{c} = 0{''.join(row)};" for c, row in enumerate(_slopes(structure))),
        updates=lines(
            f"const double k{c} = a * {component('k', c)} + step * s{c}; "
            f"{component('k', c)} = k{c}; {component('y', c)} = y{c} + b * k{c};"
            for c in every
        ),
    )


def _slopes(structure: Structure) -> list[list[str]]:
    """The terms of each component's derivative."""
    rows: list[list[str]] = [[] for _ in range(structure.num_components)]
    for out, source, pair, imaginary, sign in structure.drive_terms:
        scale = "" if abs(sign) == 1 else f"{abs(sign)} * "
        rows[out].append(f" {'+' if sign > 0 else '-'} {scale}d{pair}_{int(imaginary)} * y{source}")
    n, m = len(structure.populations), len(structure.coherences)
    for k in range(m):
        real, imaginary = n + k, n + m + k
        rows[real].append(f" + rotation[{k} * V + v] * y{imaginary} - damping[{k}] * y{real}")
        rows[imaginary].append(f" - rotation[{k} * V + v] * y{real} - damping[{k}] * y{imaginary}")
    for channel, filled, emptied in structure.transfers:
        rows[filled].append(f" + transfer[{channel}] * y{emptied}")
        rows[emptied].append(f" - transfer[{channel}] * y{emptied}")
    return rows
