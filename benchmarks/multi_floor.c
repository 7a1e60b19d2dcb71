/* The floor of many classes: MULTI as a C programmer would write it by hand, for labels that come at once.

   The arithmetic and its order are those of src/calibeat/core/vector.py, which explains the letters; so the forecasts are
   the same bits. Nothing is validated, and no label is ever late: the horizon lane sleeps. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-7
#define LARGEST (1.0 - 1e-7)
#define SHARE 0.5
#define STEP 2.0
#define MOST_CONFUSED 64
#define LANES 4
#define KNOTS 6
#define TOP_KNOTS 11

typedef struct {
    double a, c, d, h00, h01, h02, h11, h12, h22; /* what all classes share, and its information */
    double *b, *known;                            /* what each class has */
    double *logits, *e;                           /* what the lane says of the present score */
} Lane;

typedef struct {
    int64_t K;
    double n, w[6], v[3], z[2], g[2], slope, slope_known;
    Lane lanes[LANES];
    double offsets[TOP_KNOTS], offsets_known[TOP_KNOTS];
    double *rho, *rho_known, *kappa, *kappa_known;
    double *x, *f, *u, *online_logits, *online, *m, *s, *r, *c, *p; /* of the present score */
    int64_t named, top;
    double C, D, t, t_rest; /* the shares of the top class and of the rest, plain and by the spline */
    double evidence, evidence_log;
} Multi;

static inline double larger(double a, double b) { return b > a ? b : a; }
static inline double smaller(double a, double b) { return b < a ? b : a; }
static inline double inside(double p) { return smaller(larger(p, EPS), LARGEST); }

/* ---- softmax ---- */

/* 2^-n for 0 <= n < 1023. */
static inline double power_of_half(int32_t n)
{
    int64_t bits = (int64_t)(1023 - n) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* e^z for -700 <= z <= 0. */
static inline double exp_of_negative(double z)
{
    int32_t whole = (int32_t)(0.5 - z * (1.0 / 0.6931471805599453));
    double n = whole;
    double r = (z + n * 0x1.62e42fee00000p-1) + n * 0x1.a39ef35793c76p-33;
    double r2 = r * r, r4 = r2 * r2;
    double high = (0.0013888888917213717 + 0.00019841269863053618 * r)
                  + (2.4801521295954376e-05 + 2.7557268459997064e-06 * r) * r2
                  + (2.7620088445409746e-07 + 2.510038549551032e-08 * r) * r4;
    double q = ((0.5000000000000001 + 0.16666666666666669 * r) + (0.04166666666662413 + 0.008333333333330062 * r) * r2)
               + high * r4;
    return (1.0 + (r + r2 * q)) * power_of_half(whole);
}

/* This and the next in four interleaved parts, as the compiler may not reorder them. */
static inline double largest(int64_t K, const double *z)
{
    double m0 = z[0], m1 = z[0], m2 = z[0], m3 = z[0];
    int64_t k = 0;
    for (; k + 4 <= K; k += 4) {
        m0 = larger(m0, z[k]);
        m1 = larger(m1, z[k + 1]);
        m2 = larger(m2, z[k + 2]);
        m3 = larger(m3, z[k + 3]);
    }
    for (; k < K; k++)
        m0 = larger(m0, z[k]);
    return larger(larger(m0, m1), larger(m2, m3));
}

static inline double total(int64_t K, const double *z)
{
    double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
    int64_t k = 0;
    for (; k + 4 <= K; k += 4) {
        s0 += z[k];
        s1 += z[k + 1];
        s2 += z[k + 2];
        s3 += z[k + 3];
    }
    for (; k < K; k++)
        s0 += z[k];
    return (s0 + s1) + (s2 + s3);
}

static inline void lower_to_zero(int64_t K, double *z)
{
    double top = largest(K, z);
    for (int64_t k = 0; k < K; k++)
        z[k] = larger(-700.0, z[k] - top);
}

/* ---- a forecast ---- */

static inline void read_score(Multi *s, const double *restrict score)
{
    double *restrict x = s->x, *restrict f = s->f, *restrict u = s->u, best = -1.0;
    for (int64_t k = 0; k < s->K; k++) {
        if (score[k] > best) {
            best = score[k];
            s->named = k;
        }
        f[k] = larger(EPS, score[k]);
        u[k] = score[k] <= EPS ? 1.0 : 0.0;
        x[k] = log(f[k]);
    }
    double scale = 1.0 / total(s->K, f);
    for (int64_t k = 0; k < s->K; k++)
        f[k] *= scale;
}

static inline void add_share(int64_t K, const double *restrict logits, double weight, double *restrict e, double *restrict m)
{
    for (int64_t k = 0; k < K; k++)
        e[k] = exp_of_negative(logits[k]);
    double scale = 1.0 / total(K, e);
    for (int64_t k = 0; k < K; k++) {
        e[k] *= scale;
        m[k] += weight * e[k];
    }
}

static inline void ask_lanes(Multi *s)
{
    int64_t K = s->K;
    const double *restrict x = s->x, *restrict f = s->f, *restrict u = s->u;
    double *restrict m = s->m;
    for (int64_t k = 0; k < K; k++)
        m[k] = s->w[4] * f[k];
    for (int i = 0; i < LANES; i++) {
        Lane *lane = &s->lanes[i];
        double *restrict z = lane->logits;
        const double *restrict b = lane->b;
        for (int64_t k = 0; k < K; k++)
            z[k] = lane->a * x[k] + lane->c * f[k] + lane->d * u[k] + b[k];
        lower_to_zero(K, z);
        add_share(K, z, s->w[i], lane->e, m);
    }
    double *restrict z = s->online_logits;
    for (int64_t k = 0; k < K; k++)
        z[k] = s->slope * x[k];
    lower_to_zero(K, z);
    add_share(K, z, s->w[5], s->online, m);
}

static const double knot_at[] = {0.0, 0.01, 0.1, 0.5, 0.9}, per_width[] = {100.0, 1.0 / 0.09, 2.5, 2.5, 10.0};

static inline int place(double m, double *h)
{
    int j = (m > 0.01) + (m > 0.1) + (m > 0.5) + (m > 0.9);
    *h = smaller((m - knot_at[j]) * per_width[j], 1.0);
    return j;
}

static inline void ask_stages(Multi *state)
{
    int64_t K = state->K;
    const double *restrict m = state->m, *restrict rho = state->rho;
    double *restrict s = state->s, *restrict r = state->r, *restrict c = state->c, h;
    double v0 = state->v[0], v1 = state->v[1], v2 = state->v[2];
    for (int64_t k = 0; k < K; k++) {
        int j = place(m[k], &h);
        s[k] = m[k] * ((1.0 - h) * rho[KNOTS * k + j] + h * rho[KNOTS * k + j + 1]);
    }
    double scale = 1.0 / total(K, s);
    if (K <= MOST_CONFUSED) {
        const double *restrict kappa = state->kappa + state->named * K;
        for (int64_t k = 0; k < K; k++) {
            s[k] *= scale;
            r[k] = s[k] * kappa[k];
        }
        scale = 1.0 / total(K, r);
        for (int64_t k = 0; k < K; k++) {
            r[k] *= scale;
            c[k] = v0 * m[k] + v1 * s[k] + v2 * r[k];
        }
    } else {
        for (int64_t k = 0; k < K; k++) {
            s[k] *= scale;
            c[k] = v0 * m[k] + v1 * s[k];
        }
    }
}

static inline int top_knot(double place, double *h)
{
    place = place > 0.0 ? place : 0.0;
    place = place < TOP_KNOTS - 1 ? place : TOP_KNOTS - 1;
    int j = (int)place;
    j = j < TOP_KNOTS - 1 ? j : TOP_KNOTS - 2;
    *h = place - j;
    return j;
}

static inline void ask_top(Multi *s)
{
    int64_t K = s->K, i = 0;
    double *restrict c = s->c, *restrict p = s->p, h;
    double best = largest(K, c);
    while (c[i] != best)
        i++;
    c[i] = 0.0;
    double rest = total(K, c);
    c[i] = best;
    s->top = i;
    s->C = inside(best / (best + rest));
    s->D = inside(rest / (best + rest));
    int j = top_knot(10.0 * s->C, &h);
    double offset = (1.0 - h) * s->offsets[j] + h * s->offsets[j + 1];
    double odds = s->D * exp(-offset);
    s->t = inside(s->C / (s->C + odds));
    s->t_rest = inside(odds / (s->C + odds));
    double scale = (s->z[0] * s->D + s->z[1] * s->t_rest) / rest;
    for (int64_t k = 0; k < K; k++)
        p[k] = c[k] * scale;
    p[i] = s->z[0] * s->C + s->z[1] * s->t;
}

static inline void predict(Multi *s, const double *score, double *restrict forecast)
{
    read_score(s, score);
    ask_lanes(s);
    ask_stages(s);
    ask_top(s);
    const double *restrict p = s->p, *restrict o = s->online;
    double g0 = s->g[0], g1 = s->g[1], scale = 1.0 / (1.0 + s->K * EPS);
    for (int64_t k = 0; k < s->K; k++)
        forecast[k] = (g0 * p[k] + g1 * o[k] + EPS) * scale;
}

/* ---- its label ---- */

static inline void weigh_two(double *weights, double first, double second, double alpha)
{
    double u0 = weights[0] * first, u1 = weights[1] * second;
    double keep = (1.0 - alpha) / (u0 + u1), gift = alpha / 2.0;
    weights[0] = keep * u0 + gift;
    weights[1] = keep * u1 + gift;
}

static inline void weigh(Multi *s, int64_t y)
{
    double alpha = SHARE / (s->n + 1.0), o = s->online[y], u[6];
    for (int i = 0; i < LANES; i++)
        u[i] = s->w[i] * s->lanes[i].e[y];
    u[4] = s->w[4] * s->f[y];
    u[5] = s->w[5] * o;
    double keep = (1.0 - alpha) / (((u[0] + u[1]) + (u[2] + u[3])) + (u[4] + u[5])), gift = alpha / 6.0;
    for (int i = 0; i < 6; i++)
        s->w[i] = keep * u[i] + gift;
    if (s->K <= MOST_CONFUSED) {
        u[0] = s->v[0] * s->m[y];
        u[1] = s->v[1] * s->s[y];
        u[2] = s->v[2] * s->r[y];
        keep = (1.0 - alpha) / (u[0] + u[1] + u[2]);
        gift = alpha / 3.0;
        for (int i = 0; i < 3; i++)
            s->v[i] = keep * u[i] + gift;
    } else
        weigh_two(s->v, s->m[y], s->s[y], alpha);
    int hit = y == s->top;
    weigh_two(s->z, hit ? s->C : s->D, hit ? s->t : s->t_rest, alpha);
    weigh_two(s->g, s->p[y], o, alpha);
}

static inline void learn_shared(const Multi *s, Lane *lane, double keep, int64_t y)
{
    const double *restrict x = s->x, *restrict f = s->f, *restrict u = s->u, *restrict e = lane->e;
    double x_y = x[y], f_y = f[y];
    double mx = 0.0, mf = 0.0, mxx = 0.0, mxf = 0.0, mff = 0.0, mu = 0.0, mux, muf, muu;
    for (int64_t k = 0; k < s->K; k++) {
        double X = x[k] - x_y, F = f[k] - f_y, pX = e[k] * X, pF = e[k] * F;
        mx += pX;
        mf += pF;
        mxx += pX * X;
        mxf += pX * F;
        mff += pF * F;
        mu += e[k] * u[k];
    }
    if (u[y] == 0.0) {
        mux = muf = 0.0;
        muu = mu;
        if (mu > 0.0) {
            int64_t k = 0;
            while (u[k] == 0.0)
                k++;
            mux = mu * (x[k] - x_y);
            muf = mu * (f[k] - f_y);
        }
    } else {
        muu = 1.0 - mu;
        mu = -muu;
        mux = -mx;
        muf = -mf;
    }
    double h00 = lane->h00 = keep * lane->h00 + (1.0 - keep) * 4.0 + (mxx - mx * mx);
    double h01 = lane->h01 = keep * lane->h01 + (mxf - mx * mf);
    double h02 = lane->h02 = keep * lane->h02 + (mux - mx * mu);
    double h11 = lane->h11 = keep * lane->h11 + (1.0 - keep) + (mff - mf * mf);
    double h12 = lane->h12 = keep * lane->h12 + (muf - mf * mu);
    double h22 = lane->h22 = keep * lane->h22 + (1.0 - keep) * 0.25 + (muu - mu * mu);
    double r0 = -mx, r1 = -mf, r2 = -mu; /* H^-1 r by LDL' */
    double i0 = 1.0 / h00, l1 = h01 * i0, l2 = h02 * i0, g = h12 - l1 * h02, i1 = 1.0 / (h11 - l1 * h01), l3 = g * i1;
    r1 -= l1 * r0;
    r2 -= l2 * r0 + l3 * r1;
    double s2 = r2 / (h22 - l2 * h02 - l3 * g), s1 = r1 * i1 - l3 * s2, s0 = r0 * i0 - l1 * s1 - l2 * s2;
    double gain = STEP / larger(STEP, -(s0 * mx + s1 * mf + s2 * mu));
    lane->a += s0 * gain;
    lane->c += s1 * gain;
    lane->d += s2 * gain;
}

static inline void learn_biases(int64_t K, Lane *lane, double keep, int64_t y)
{
    double *restrict b = lane->b, *restrict known = lane->known, gift = 1.0 - keep;
    const double *restrict e = lane->e;
    if (keep == 1.0)
        for (int64_t k = 0; k < K; k++) {
            known[k] += e[k] * (1.0 - e[k]);
            b[k] -= e[k] / known[k];
        }
    else
        for (int64_t k = 0; k < K; k++) {
            double old = keep * known[k], anchored = old + gift, now = anchored + e[k] * (1.0 - e[k]);
            known[k] = now;
            b[k] = (b[k] * (old * now) - e[k] * anchored) / (anchored * now);
        }
    b[y] += 1.0 / known[y];
}

static inline void learn_slope(Multi *s, int64_t y)
{
    const double *restrict x = s->x, *restrict o = s->online;
    double g = 0.0;
    for (int64_t k = 0; k < s->K; k++)
        g += o[k] * (x[k] - x[y]);
    s->slope_known += g * g;
    s->slope = larger(-100.0, smaller(100.0, s->slope - 10.0 * g / s->slope_known));
}

static inline void learn_factors(Multi *state, int64_t y)
{
    int64_t K = state->K;
    const double *restrict m = state->m, *restrict s = state->s, *restrict r = state->r;
    double *restrict rho = state->rho, *restrict ell = state->rho_known, h;
    for (int64_t k = 0; k < K; k++) {
        int64_t j = place(m[k], &h) + KNOTS * k;
        double p = s[k], left = 1.0 - h, variance = p * (1.0 - p), error = (k == y ? 1.0 : 0.0) - p;
        ell[j] += left * variance;
        ell[j + 1] += h * variance;
        rho[j] *= 1.0 + left * error / ell[j];
        rho[j + 1] *= 1.0 + h * error / ell[j + 1];
    }
    if (K <= MOST_CONFUSED) {
        double *restrict kappa = state->kappa + state->named * K, *restrict known = state->kappa_known + state->named * K;
        for (int64_t k = 0; k < K; k++) {
            known[k] += r[k] * (1.0 - r[k]);
            kappa[k] *= 1.0 + ((k == y ? 1.0 : 0.0) - r[k]) / known[k];
        }
    }
}

static inline void learn_top(Multi *s, int64_t y)
{
    double h, variance = s->t * (1.0 - s->t), error = (y == s->top ? 1.0 : 0.0) - s->t;
    int j = top_knot(10.0 * s->C, &h);
    s->offsets_known[j] += (1.0 - h) * variance;
    s->offsets[j] += (1.0 - h) * error / s->offsets_known[j];
    s->offsets_known[j + 1] += h * variance;
    s->offsets[j + 1] += h * error / s->offsets_known[j + 1];
}

static inline void learn(Multi *s, int64_t y, double given, double issued)
{
    static const double keep[] = {1.0, 1.0 - 1.0 / 1000.0, 1.0 - 1.0 / 300.0, 1.0};
    static const double keep_biases[] = {1.0, 1.0 - 1.0 / 1000.0, 1.0 - 1.0 / 300.0, 1.0 - 1.0 / 50.0};
    weigh(s, y);
    for (int i = 0; i < LANES; i++)
        learn_shared(s, &s->lanes[i], keep[i], y);
    for (int i = 0; i < LANES; i++)
        learn_biases(s->K, &s->lanes[i], keep_biases[i], y);
    learn_slope(s, y);
    learn_factors(s, y);
    learn_top(s, y);
    s->evidence *= issued / larger(EPS, given);
    if (s->evidence < 1e-100 || s->evidence > 1e100) {
        s->evidence_log += log(s->evidence);
        s->evidence = 1.0;
    }
    s->n += 1.0;
}

/* ---- a stream ---- */

static double *filled(double **room, int64_t size, double value)
{
    double *begin = *room;
    for (int64_t k = 0; k < size; k++)
        begin[k] = value;
    *room += size;
    return begin;
}

int multi(int64_t events, int64_t K, const double *scores, const int64_t *labels, double *forecasts)
{
    static const double variances[] = {0.1, 1.0, 1.0, 1.0};
    double *memory = malloc(sizeof(double) * (38 * K + 2 * K * K)), *room = memory;
    if (memory == NULL)
        return 1;
    int64_t stages = K <= MOST_CONFUSED ? 3 : 2;
    Multi s = {.K = K, .z = {0.5, 0.5}, .g = {0.5, 0.5}, .slope = 1.0, .slope_known = 100.0, .evidence = 1.0};
    for (int i = 0; i < 6; i++)
        s.w[i] = 1.0 / 6.0;
    for (int i = 0; i < stages; i++)
        s.v[i] = 1.0 / stages;
    for (int i = 0; i < LANES; i++) {
        Lane lane = {.a = 1.0, .h00 = 4.0, .h11 = 1.0, .h22 = 0.25};
        lane.b = filled(&room, K, 0.0);
        lane.known = filled(&room, K, 1.0 / variances[i]);
        lane.logits = filled(&room, K, 0.0);
        lane.e = filled(&room, K, 0.0);
        s.lanes[i] = lane;
    }
    for (int i = 0; i < TOP_KNOTS; i++)
        s.offsets_known[i] = 10.0;
    s.rho = filled(&room, KNOTS * K, 1.0);
    s.rho_known = filled(&room, KNOTS * K, 3.0);
    double **blocks[] = {&s.x, &s.f, &s.u, &s.online_logits, &s.online, &s.m, &s.s, &s.r, &s.c, &s.p};
    for (int i = 0; i < 10; i++)
        *blocks[i] = filled(&room, K, 0.0);
    s.kappa = filled(&room, K * K, 1.0);
    s.kappa_known = filled(&room, K * K, 2.0);
    for (int64_t i = 0; i < events; i++) {
        predict(&s, scores + i * K, forecasts + i * K);
        learn(&s, labels[i], scores[i * K + labels[i]], forecasts[i * K + labels[i]]);
    }
    free(memory);
    return 0;
}
