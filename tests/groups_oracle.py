"""Groups, slowly and literally: AUTO's lanes -> groups -> AUTO's spline. The oracle of core/groups.py.

o = Oracle(attributes=2)
r = o.predict(0.83, o.words(["fr", None]))     # pure; r["p"] is the forecast
o.update(r, 1)                                 # now or later, in any order
o.update(r, 0.06, weight=20.0, trials=50)      # y is the share of ones
"""

import hashlib
import math
import struct

import auto_oracle as auto
from auto_oracle import EPS, clip, logit, sigmoid

RATES = (0.0, 0.01)  # lanes still and fleeting: what a visit takes from a cell, divided by the columns of the event
PRIOR = (1 / 2, 1 / 3, 1 / 6)  # weights of expert, still, fleeting
L_CLIP, X_CLIP = 8.0, 4.0  # the expert's logit as an offset; as the factor of a slope
TAU0, N0, TAU_LO, TAU_HI = (
    0.05,
    2.0,
    1e-4,
    4.0,
)  # prior variance of a column: first guess, cells that the guess counts for, bounds
S_TAU = 0.3  # prior variance of a slope / that of an offset
STEP, SHARE, LAZY = 2.0, 0.5, 1.1  # as in AUTO
E_INFO, E_STEP = 3.0, 1.0  # e-value of a segment: prior information, largest offset of the bet
WAYS, PAIRS_UP_TO, M64 = 8, 6, (1 << 64) - 1


def canonical(value):
    """one byte of type, then the content: 1, "1" and True are three values; 1.0 is 1; None and NaN are one value"""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return b"\0"
    if isinstance(value, bool):
        return b"\1" + bytes([value])
    if isinstance(value, int) or (isinstance(value, float) and value == int(value)):
        return b"\2" + struct.pack("<q", int(value))
    if isinstance(value, str):
        return b"\3" + value.encode("utf-8")
    raise TypeError("a group is a string, a whole number, a bool or None; cut other numbers into bands first")


def word(seed, k, value):
    """64 bits of attribute k with this value, never 0"""
    data = bytes([k]) + canonical(value)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=struct.pack("<Q", seed)).digest(), "little") or 1


def cross(a, b):
    z = (a * 0x9E3779B97F4A7C15 & M64) ^ b
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & M64
    return (z ^ (z >> 31)) or 1


class Cell:
    def __init__(self, column):
        self.column, self.last, self.kept = column, 0.0, True
        self.part = [
            {"L": 0.0, "H": 0.0, "sL": 0.0, "sH": 0.0, "A": 0.0, "B": 0.0} for _ in RATES
        ]  # what each lane knows; the prior is not in it
        self.events = self.ones = self.score = self.expert = self.forecast = self.V = self.log_e = self.weight = 0.0


def worth(cell):
    """What a cell has learnt; rounded, so that the last bits do not decide."""
    return math.floor(cell.part[0]["B"] * 2**20 + 0.5) / 2**20


class Oracle:
    def __init__(self, attributes, crossings=None, cells=1 << 14, seed=0):
        K = self.K = attributes
        if crossings is None:
            crossings = [(a, b) for a in range(K) for b in range(a + 1, K)] if K <= PAIRS_UP_TO else []
        self.crossings, self.C = [tuple(c) for c in crossings], K + len(crossings)
        self.row, self.buckets, self.slots, self.seed, self.opened, self.evicted = auto.new_row(), {}, cells, seed, 0, 0
        self.w, self.G, self.T = list(PRIOR), 0.0, 1.0
        self.bets = True  # until an outcome has a weight other than 1
        self.A, self.B = (
            [[0.0] * self.C for _ in RATES] for _ in "AB"
        )  # per lane and column: sum of squared offsets; of what cells know

    def words(self, values):
        return [word(self.seed, k, v) for k, v in enumerate(values)]

    def columns(self, words):
        return list(words) + [cross(words[a], words[b]) for a, b in self.crossings]

    def tau(self, lane, k):
        return clip((self.A[lane][k] + N0 * TAU0) / (self.B[lane][k] + N0), TAU_LO, TAU_HI)

    def find(self, h):
        bucket = self.buckets.setdefault(h % (self.slots // WAYS), [])  # lists of (h, cell), at most WAYS
        return bucket, next((cell for tag, cell in bucket if tag == h), None)

    def read(self, lane, k, cell):
        """mean and variance of offset and slope. An unknown cell says 0; a crossing has no slope"""
        if cell is None:
            return 0.0, 0.0, 0.0, 0.0
        c, tau = cell.part[lane], self.tau(lane, k)
        v, sv = 1.0 / (1.0 / tau + c["L"]), (1.0 / (1.0 / (S_TAU * tau) + c["sL"]) if k < self.K else 0.0)
        return c["H"] * v, v, c["sH"] * sv, sv

    def grouped(self, m, words):
        """what the expert m and the two group lanes say now, and their mixture"""
        cells = [self.find(h)[1] for h in self.columns(words)]
        off = clip(logit(m), -L_CLIP, L_CLIP)
        x, said = clip(off, -X_CLIP, X_CLIP), [m]
        for lane in range(len(RATES)):
            z = off
            for k, cell in enumerate(cells):
                mu, _, s, _ = self.read(lane, k, cell)
                z += mu + s * x
            said.append(clip(sigmoid(z), EPS, 1.0 - EPS))
        return said, clip(sum(w * e for w, e in zip(self.w, said, strict=True)), EPS, 1.0 - EPS)

    def around(self, r):
        """what cells and splines learn around: as issued; for a beginner's forecast, what is said now"""
        if auto.BEGINNER * r["n"] >= self.row[auto.N]:
            return r["said"][0], r["g"]
        x, xk, g, _ = auto.features(r["auto"][auto.R_F])
        m = auto.around(self.row, r["auto"], x, xk, g)
        return m, self.grouped(m, r["words"])[1]

    def predict(self, score, words):
        a = auto.predict(self.row, score)
        said, g = self.grouped(a[auto.R_M], words)
        score_x, _, _, atom = auto.features(a[auto.R_F])
        s, t, v = auto.spline(self.row, g, score_x, atom), auto.mspline(self.row, g), self.row[auto.V : auto.V + 3]
        p = clip(v[0] * g + v[1] * s + v[2] * t, EPS, 1.0 - EPS)
        return {
            "auto": a,
            "n": self.row[auto.N],
            "score": score,
            "words": list(words),
            "said": said,
            "g": g,
            "s": s,
            "t": t,
            "p": p,
        }

    def update(self, r, y, weight=1.0, trials=1):
        if weight == 0.0 or trials == 0:
            return
        lag, n = self.row[auto.N] - r["n"], self.row[auto.N] + 1.0
        base, base_g = self.around(r)
        p, like = r["p"], auto.like_of(y)
        # AUTO: its lanes learn around m, its spline around g. (Two whole updates; of each, the right part is kept.)
        behind, around_g = self.row.copy(), r["auto"].copy()
        around_g[[auto.R_M, auto.R_S, auto.R_T, auto.R_P]] = r["g"], r["s"], r["t"], p
        omega, clipped = auto.update(self.row, r["auto"], y, weight, trials, issued_p=p)
        auto.update(behind, around_g, y, weight, trials, base_g)
        for at, end in ((auto.V, auto.V + 3), (auto.ATOM, auto.GW), (auto.GV, auto.TV + 1)):
            self.row[at:end] = behind[at:end]
        self.reweigh([like(e) for e in r["said"]], like(r["g"]), lag, n, omega)
        cells = [self.place(h, k, n) for k, h in enumerate(self.columns(r["words"]))]
        off = clip(logit(base), -L_CLIP, L_CLIP)
        steps = list(auto.portions(omega))
        for lane, rate in enumerate(RATES):
            for i, part in enumerate(steps):  # the step back to the prior once, after the last portion
                back = rate / self.C if i == len(steps) - 1 else 0.0
                self.learn(lane, back, cells, off, clip(off, -X_CLIP, X_CLIP), float(y), part)
        self.bets = self.bets and weight == 1.0
        W = clipped * trials  # events are those that were seen, all else counts by weight
        for c in cells:  # the records; a bet against p whose offset theta is known before y
            if self.bets:
                theta = clip((c.ones - c.forecast) / (c.V + E_INFO), -E_STEP, E_STEP)
                c.log_e += trials * y * theta - trials * math.log(1.0 - p + p * math.exp(theta))
            c.events, c.ones, c.score, c.expert = (
                c.events + trials,
                c.ones + W * y,
                c.score + W * r["score"],
                c.expert + W * r["said"][0],
            )
            c.forecast, c.V, c.weight = c.forecast + W * p, c.V + clipped * W * (p * (1.0 - p)), c.weight + W

    def reweigh(self, like, issued, lag, n, omega):
        """AUTO's REWEIGH with prior weights PRIOR"""
        fresh, share = sum(w * e for w, e in zip(self.w, like, strict=True)), SHARE / n
        a = omega / self.T
        top = max(like) if a > 1.0 else 1.0
        u = [w * auto.power(e / top if a > 1.0 else e, a) for w, e in zip(self.w, like, strict=True)]
        self.w = [(1.0 - share) * (e / sum(u)) + share * w0 for e, w0 in zip(u, PRIOR, strict=True)]
        if lag > 0.0:
            self.G += omega * max(math.log(fresh / issued), 0.0)
        if a > 1.0:
            self.G += auto.lump(u, top, fresh, self.T, omega)
        if 1.0 + self.G > LAZY * self.T:
            c = self.T / (1.0 + self.G)
            u = [w**c * w0 ** (1.0 - c) for w, w0 in zip(self.w, PRIOR, strict=True)]
            self.w, self.T = [e / sum(u) for e in u], 1.0 + self.G

    def place(self, h, k, n):
        """the cell of h: found, or opened in a free slot of its bucket, or in that of the cell which is worth least"""
        bucket, cell = self.find(h)
        if cell is None:
            cell, old = (
                Cell(k),
                [s for s in range(len(bucket)) if bucket[s][1].last < n],
            )  # never a cell of this same event
            if len(bucket) < WAYS:
                bucket.append((h, cell))
            elif old:
                s = min(old, key=lambda s: (worth(bucket[s][1]) + 1e-3) / (1.0 + (n - bucket[s][1].last) / self.slots))
                gone, bucket[s], self.evicted = bucket[s][1], (h, cell), self.evicted + 1
                for lane, part in enumerate(gone.part):  # its terms leave the sums
                    self.A[lane][gone.column] -= part["A"]
                    self.B[lane][gone.column] -= part["B"]
            else:
                cell.kept = False  # nine cells of one event in one bucket: used once, kept nowhere
            self.opened += cell.kept
        cell.last = n
        return cell

    def learn(self, lane, rate, cells, off, x, y, part):
        """one portion of a step of a diagonal Gaussian filter for  logit = off + sum over cells (mu + s x)"""
        now = [self.read(lane, k, c) for k, c in enumerate(cells)]
        z = off + sum(mu + s * x for mu, _, s, _ in now)
        S = sum(v + sv * x * x for _, v, _, sv in now)
        e = clip(sigmoid(z), EPS, 1.0 - EPS)
        h = part * (e * (1.0 - e))
        d = part * (y - e) / (1.0 + h * S)
        d *= min(1.0, STEP / max(abs(d * S), 1e-300))

        def moved(mean, var, f, top):  # a parameter with feature f and prior variance top
            mean += var * f * d
            var = 1.0 / (1.0 / var + f * f * h / (1.0 + h * (S - var * f * f)))
            mean, var = (
                mean * (1.0 - rate / 2.0),
                min(var + rate * (top - var), top),
            )  # fleeting: a step back to the prior
            return 1.0 / var - 1.0 / top, mean / var, mean * mean, 1.0 - var / top

        for k, (cell, (mu, v, s, sv)) in enumerate(zip(cells, now, strict=True)):
            c, tau = cell.part[lane], self.tau(lane, k)
            c["L"], c["H"], A, B = moved(mu, v, 1.0, tau)
            if k < self.K:
                c["sL"], c["sH"], _, _ = moved(s, sv, x, S_TAU * tau)
            if cell.kept:
                self.A[lane][k] += A - c["A"]
                self.B[lane][k] += B - c["B"]
                c["A"], c["B"] = A, B

    def segments(self):
        """rows (column, word, events, ones, mean score, mean expert, mean forecast, log e), by column and word

        The means are by weight.
        """
        cells = [(c.column, h, c) for bucket in self.buckets.values() for h, c in bucket]
        return [
            (k, h, c.events, c.ones, c.score / c.weight, c.expert / c.weight, c.forecast / c.weight, c.log_e)
            for k, h, c in sorted(cells, key=lambda r: r[:2])
        ]


def run(scores, words, outcomes, due=None, weight=None, trials=None, **how):
    """due: outcome i is learnt before forecast due[i]; None: at once. An outcome that is NaN never comes.
    -> forecasts, grouped, experts, the oracle"""
    n = len(scores)
    heavy, counts = auto.each(weight, n), auto.each(trials, n)
    due = [i + 1 for i in range(n)] if due is None else [int(d) for d in due]
    order, j, box, out, o = sorted(range(n), key=lambda i: due[i]), 0, {}, [], Oracle(len(words[0]), **how)
    for t in range(n):
        while j < n and due[order[j]] <= t:
            i = order[j]
            r = box.pop(i)
            if not math.isnan(outcomes[i]):
                o.update(r, float(outcomes[i]), float(heavy[i]), int(counts[i]))
            j += 1
        box[t] = o.predict(float(scores[t]), [int(w) for w in words[t]])
        out.append((box[t]["p"], box[t]["g"], box[t]["said"][0]))
    return [list(c) for c in zip(*out, strict=True)] + [o]
