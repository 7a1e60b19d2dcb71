/* The floor: OPS, TOPS and HOPS as a C programmer would write them by hand, the same arithmetic in the same order.

   row = [t, n, theta0, theta1, A00, A01, A11, (sum, count) per cell...], as wide as calibeat's own row.
   Nothing is validated; scores in [0, 1] and outcomes in {0, 1} are doubles. The draw of HOPS hashes (key, event). */
#include <math.h>
#include <stdint.h>

#define CLIP 1e-5
#define GAIN 10.0 /* 1 / gamma */
#define RADIUS 100.0
#define BINS 10

typedef struct {
    double a, b;          /* theta */
    double A00, A01, A11; /* A, packed */
} Newton;

static inline double logit(double score)
{
    double f = score < CLIP ? CLIP : (score > 1.0 - CLIP ? 1.0 - CLIP : score);
    return log(f / (1.0 - f));
}

/* 1 / (1 + exp(-z)) for z >= 0, else e / (1 + e) with e = exp(z): the same bits without a branch. */
static inline double sigmoid(double z)
{
    double e = exp(-fabs(z));
    return (z >= 0.0 ? 1.0 : e) / (1.0 + e);
}

/* theta = (A + lambda I)^-1 A theta~ with |theta| = RADIUS. Never reached at the defaults, so kept out of the loop. */
static __attribute__((noinline, cold)) void project(Newton *s)
{
    double v0 = s->A00 * s->a + s->A01 * s->b, v1 = s->A01 * s->a + s->A11 * s->b;
    double low = 0.0, high = sqrt(v0 * v0 + v1 * v1) / RADIUS;
    for (int i = 0; i < 200; i++) {
        double lambda = 0.5 * (low + high), c00 = s->A00 + lambda, c11 = s->A11 + lambda;
        double det = c00 * c11 - s->A01 * s->A01;
        double t0 = (c11 * v0 - s->A01 * v1) / det, t1 = (c00 * v1 - s->A01 * v0) / det;
        s->a = t0;
        s->b = t1;
        if (t0 * t0 + t1 * t1 > RADIUS * RADIUS)
            low = lambda;
        else
            high = lambda;
    }
}

/* One online Newton step: g = (p - y) x, A += g g', theta -= A^-1 g / gamma, by A = L D L'. */
static inline void step(Newton *s, double x, double p, double y)
{
    double e = p - y, g0 = e * x, g1 = e;
    s->A00 += g0 * g0;
    s->A01 += g0 * g1;
    s->A11 += g1 * g1;
    double l = s->A01 / s->A00, d1 = s->A11 - l * s->A01;
    double s1 = (g1 - l * g0) / d1, s0 = (g0 - s->A01 * s1) / s->A00;
    s->a -= GAIN * s0;
    s->b -= GAIN * s1;
    if (s->a * s->a + s->b * s->b > RADIUS * RADIUS)
        project(s);
}

/* The bin of p: [k/m, (k+1)/m), the last one closed; the product p m may round across an edge. */
static inline int bin(double p)
{
    int b = (int)(p * BINS);
    if (b > BINS - 1)
        b = BINS - 1;
    if (b < BINS - 1 && p >= (b + 1) / (double)BINS)
        b++;
    else if (p < b / (double)BINS)
        b--;
    return b;
}

static inline double mean(const double *cell, int b)
{
    return cell[1] > 0.0 ? cell[0] / cell[1] : (b + 0.5) / BINS;
}

static inline double uniform(uint64_t key, uint64_t event)
{
    uint64_t z = key + event * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return ((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static inline int fulfils_a(const double *cells, int b)
{
    double p = mean(cells + 2 * b, b);
    return b / (double)BINS - p <= 0.0 && p - (b + 1) / (double)BINS <= 0.0;
}

/* F99 over the BINS mid-points: the own bin, then the lowest that fulfils A, else a draw between two neighbours. */
static inline int f99(const double *cells, int own, double u)
{
    if (fulfils_a(cells, own))
        return own;
    for (int b = 0; b < BINS; b++)
        if (fulfils_a(cells, b))
            return b;
    int c = 1;
    while (c < BINS - 1 && c / (double)BINS - mean(cells + 2 * c, c) <= 0.0)
        c++;
    double d = c / (double)BINS - mean(cells + 2 * c, c);
    double e = mean(cells + 2 * (c - 1), c - 1) - c / (double)BINS;
    return u * (d + e) <= d ? c - 1 : c;
}

static inline Newton load(const double *row)
{
    return (Newton){row[2], row[3], row[4], row[5], row[6]};
}

static inline void store(double *row, Newton s, int64_t events)
{
    row[0] += (double)events;
    row[1] += (double)events;
    row[2] = s.a;
    row[3] = s.b;
    row[4] = s.A00;
    row[5] = s.A01;
    row[6] = s.A11;
}

void ops(int64_t events, const double *scores, const double *outcomes, uint64_t key, double *row, double *forecasts)
{
    Newton s = load(row);
    (void)key;
    for (int64_t i = 0; i < events; i++) {
        double x = logit(scores[i]), p = sigmoid(s.a * x + s.b);
        forecasts[i] = p;
        step(&s, x, p, outcomes[i]);
    }
    store(row, s, events);
}

void tops(int64_t events, const double *scores, const double *outcomes, uint64_t key, double *row, double *forecasts)
{
    Newton s = load(row);
    double *cells = row + 7;
    (void)key;
    for (int64_t i = 0; i < events; i++) {
        double x = logit(scores[i]), p = sigmoid(s.a * x + s.b);
        int b = bin(p);
        double *cell = cells + 2 * b;
        forecasts[i] = mean(cell, b);
        cell[0] += outcomes[i];
        cell[1] += 1.0;
        step(&s, x, p, outcomes[i]);
    }
    store(row, s, events);
}

void hops(int64_t events, const double *scores, const double *outcomes, uint64_t key, double *row, double *forecasts)
{
    Newton s = load(row);
    double *cells = row + 7;
    uint64_t first = (uint64_t)row[0];
    for (int64_t i = 0; i < events; i++) {
        double x = logit(scores[i]), p = sigmoid(s.a * x + s.b);
        int own = bin(p);
        double *forecaster = cells + 2 * BINS * own;
        int b = f99(forecaster, own, uniform(key, first + (uint64_t)i));
        double *cell = forecaster + 2 * b;
        forecasts[i] = (b + 0.5) / BINS;
        cell[0] += outcomes[i];
        cell[1] += 1.0;
        step(&s, x, p, outcomes[i]);
    }
    store(row, s, events);
}

/* The memory floor of a bank: each event reads and writes every cache line of its row once, and computes nothing. */
void touch(int64_t events, const int32_t *slots, int64_t stride, double *rows)
{
    for (int64_t i = 0; i < events; i++) {
        double *row = rows + (int64_t)slots[i] * stride;
        for (int64_t j = 0; j < stride; j += 8)
            row[j] += 1.0;
    }
}

/* TOPS on the rows of a bank, in the order of the events: what `tops` does to one row, with the row looked up. */
void tops_rows(int64_t events, const int32_t *slots, int64_t stride, double *rows, const double *scores,
               const double *outcomes, double *forecasts)
{
    for (int64_t i = 0; i < events; i++)
        tops(1, scores + i, outcomes + i, 0, rows + (int64_t)slots[i] * stride, forecasts + i);
}
