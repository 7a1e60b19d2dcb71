/* The floor: OPS, TOPS, HOPS and AUTO as a C programmer would write them by hand, the same arithmetic in the same order.

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

/* AUTO with outcomes at once: four Kalman lanes, the raw score, the paper's OPS, two splines, evidence. */
#define EPS 1e-7
#define LARGEST (1.0 - 1e-7)
#define LANES 4
#define SCORE_KNOTS 25
#define EXPERT_KNOTS 11

typedef struct {
    double n, slope[LANES], bend[LANES], offset[LANES];
    double aa[LANES], ac[LANES], ab[LANES], cc[LANES], cb[LANES], bb[LANES];
    double weight[6], part[3], atoms[4], score_offset[SCORE_KNOTS], score_known[SCORE_KNOTS];
    double expert_offset[EXPERT_KNOTS], expert_known[EXPERT_KNOTS], residual[10], count[10], log_evidence, evidence;
    Newton ops;
} Auto;

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }
static inline double inside(double p) { return smaller(LARGEST, larger(EPS, p)); }
static inline double squashed(double z) { return inside(1.0 / (1.0 + exp(-larger(z, -700.0)))); }
static inline double shifted(double m, double c) { return inside(m / (m + (1.0 - m) * exp(-c))); }
static inline double likelihood(double p, double y) { return y == 1.0 ? p : 1.0 - p; }

static inline int knot(double place, int last, double *right)
{
    place = smaller(larger(place, 0.0), (double)last);
    int j = (int)place < last ? (int)place : last - 1;
    *right = place - j;
    return j;
}

static inline void move_knots(double *offset, double *known, double right, double e, double y)
{
    double h = e * (1.0 - e), error = y - e, left = 1.0 - right;
    known[0] += left * h;
    offset[0] += left * error / known[0];
    known[1] += right * h;
    offset[1] += right * error / known[1];
}

static void auto_start(Auto *s)
{
    *s = (Auto){.evidence = 1.0, .ops = {1.0, 0.0, 100.0, 0.0, 100.0}};
    for (int k = 0; k < LANES; k++) {
        s->slope[k] = s->bb[k] = 1.0;
        s->aa[k] = s->cc[k] = 0.25;
    }
    for (int k = 0; k < 6; k++)
        s->weight[k] = 1.0 / 6.0;
    for (int k = 0; k < 3; k++)
        s->part[k] = 1.0 / 3.0;
    for (int k = 0; k < SCORE_KNOTS; k++)
        s->score_known[k] = 10.0;
    for (int k = 0; k < EXPERT_KNOTS; k++)
        s->expert_known[k] = 10.0;
}

void auto_(int64_t events, const double *scores, const double *outcomes, uint64_t key, double *row, double *forecasts)
{
    static const double drift_ac[LANES] = {0.0, 2.5e-5, 2.5e-4, 0.0}, drift_b[LANES] = {0.0, 1e-4, 1e-3, 1e-2};
    const double ln4 = log(4.0), at_the_clip = ln4 - 6.0 - 2.0 * log(1.0 + exp(-6.0));
    Auto s;
    (void)key, (void)row;
    auto_start(&s);
    for (int64_t i = 0; i < events; i++) {
        double score = scores[i], y = outcomes[i], e[LANES], right_score = 0.0, right_expert;
        double f = score < CLIP ? CLIP : (score > 1.0 - CLIP ? 1.0 - CLIP : score);
        double low = log(f), high = log(1.0 - f), x = low - high, logit = x, g = low + high + ln4;
        int atom = f <= CLIP || f >= 1.0 - CLIP, j = 0;
        if (atom) {
            x = f <= CLIP ? -6.0 : 6.0;
            g = at_the_clip;
        }
        for (int k = 0; k < LANES; k++)
            e[k] = s.slope[k] * x + s.bend[k] * g + s.offset[k];
        for (int k = 0; k < LANES; k++)
            e[k] = squashed(e[k]);
        double z = s.ops.a * logit + s.ops.b, paper = squashed(z), *w = s.weight;
        double m = inside(w[0] * e[0] + w[1] * e[1] + w[2] * e[2] + w[3] * e[3] + w[4] * f + w[5] * paper);
        double *cell = s.atoms + (f > 0.5 ? 2 : 0), by_score, by_expert;
        if (atom)
            by_score = inside((cell[0] + 10.0 * m) / (cell[1] + 10.0));
        else {
            j = knot((logit + 6.0) * 2.0, SCORE_KNOTS - 1, &right_score);
            by_score = shifted(m, (1.0 - right_score) * s.score_offset[j] + right_score * s.score_offset[j + 1]);
        }
        int l = knot(m * 10.0, EXPERT_KNOTS - 1, &right_expert);
        by_expert = shifted(m, (1.0 - right_expert) * s.expert_offset[l] + right_expert * s.expert_offset[l + 1]);
        double p = inside(s.part[0] * m + s.part[1] * by_score + s.part[2] * by_expert);
        forecasts[i] = p;

        double n = s.n + 1.0, alpha = 0.5 / n;
        double u0 = w[0] * likelihood(e[0], y), u1 = w[1] * likelihood(e[1], y), u2 = w[2] * likelihood(e[2], y);
        double u3 = w[3] * likelihood(e[3], y), u4 = w[4] * likelihood(f, y), u5 = w[5] * likelihood(paper, y);
        double keep = (1.0 - alpha) / (u0 + u1 + u2 + u3 + u4 + u5), gift = alpha / 6.0;
        w[0] = keep * u0 + gift, w[1] = keep * u1 + gift, w[2] = keep * u2 + gift;
        w[3] = keep * u3 + gift, w[4] = keep * u4 + gift, w[5] = keep * u5 + gift;
        for (int k = 0; k < LANES; k++) {
            double aa = s.aa[k], ac = s.ac[k], ab = s.ab[k], cc = s.cc[k], cb = s.cb[k], bb = s.bb[k];
            double ka = aa * x + ac * g + ab, kc = ac * x + cc * g + cb, kb = ab * x + cb * g + bb;
            double var = larger(ka * x + kc * g + kb, 0.0), h = e[k] * (1.0 - e[k]), d = 1.0 / (1.0 + h * var);
            double step = (y - e[k]) * d;
            step *= 2.0 / larger(fabs(step * var), 2.0);
            s.slope[k] += ka * step;
            s.bend[k] += kc * step;
            s.offset[k] += kb * step;
            d *= h;
            double da = d * ka, dc = d * kc;
            aa -= da * ka;
            cc -= dc * kc;
            bb -= d * kb * kb;
            s.aa[k] = aa < 1.0 ? aa + drift_ac[k] : aa;
            s.ac[k] = ac - da * kc;
            s.ab[k] = ab - da * kb;
            s.cc[k] = cc < 1.0 ? cc + drift_ac[k] : cc;
            s.cb[k] = cb - dc * kb;
            s.bb[k] = bb < 4.0 ? bb + drift_b[k] : bb;
        }
        step(&s.ops, logit, paper <= EPS || paper >= LARGEST ? sigmoid(z) : paper, y);
        u0 = s.part[0] * likelihood(m, y), u1 = s.part[1] * likelihood(by_score, y);
        u2 = s.part[2] * likelihood(by_expert, y);
        keep = (1.0 - alpha) / (u0 + u1 + u2), gift = alpha / 3.0;
        s.part[0] = keep * u0 + gift, s.part[1] = keep * u1 + gift, s.part[2] = keep * u2 + gift;
        if (atom) {
            cell[0] += y;
            cell[1] += 1.0;
        } else
            move_knots(s.score_offset + j, s.score_known + j, right_score, by_score, y);
        move_knots(s.expert_offset + l, s.expert_known + l, right_expert, by_expert, y);
        int b = (int)(p * 10.0) < 10 ? (int)(p * 10.0) : 9;
        s.residual[b] += y - p;
        s.count[b] += 1.0;
        double ratio = s.evidence * (likelihood(p, y) / larger(likelihood(f, y), likelihood(score, y)));
        if (ratio < 1e-100 || ratio > 1e100) {
            s.log_evidence += log(ratio);
            ratio = 1.0;
        }
        s.evidence = ratio;
        s.n = n;
    }
}

/* Many classes: softmax(a ln score), and one online Newton step on a. x has room for the classes of an event. */
void softmax(int64_t events, int64_t classes, const double *scores, const int64_t *labels, double *x, double *forecasts)
{
    double a = 1.0, information = 100.0;
    for (int64_t i = 0; i < events; i++, scores += classes, forecasts += classes) {
        double top = -1e300, total = 0.0;
        for (int64_t k = 0; k < classes; k++) {
            x[k] = log(larger(scores[k], EPS));
            top = larger(top, a * x[k]);
        }
        for (int64_t k = 0; k < classes; k++)
            total += forecasts[k] = exp(a * x[k] - top);
        double g = -x[labels[i]];
        for (int64_t k = 0; k < classes; k++) {
            forecasts[k] /= total;
            g += forecasts[k] * x[k];
        }
        information += g * g;
        a = smaller(larger(a - 10.0 * g / information, -100.0), 100.0);
    }
}
