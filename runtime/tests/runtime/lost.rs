//! Products of decays that overflow where all states are finite, under the kernels that calls of many shapes take: the whole, its
//! chunks and its gradient are those of single steps. On a machine with a GPU all of it runs there as well.

use oplus::kernels::{affine, affine_time_first};
use oplus::{Device, Kernel, Tensor};

/// A kernel with its inputs' shape, and where in it rows and times stand.
struct Case {
    kernel: &'static Kernel,
    rows: usize,
    times: usize,
    /// Whether a time's rows are neighbours, behind an axis of size 1.
    is_inside: bool,
}

/// Decays; in every third row the state is forgotten at some times.
fn decay(decay: f32, row: usize, time: usize) -> f32 {
    if row % 3 == 2 && time % 97 == 5 { 0.0 } else { decay }
}

/// The numbers that are added: a 1 before the state is forgotten, one at the last time of the second row, nothing elsewhere.
fn added(row: usize, left: usize, time: usize) -> f32 {
    f32::from(row % 3 == 2 && time % 97 == 4 || row % 3 == 1 && left == 0)
}

/// The cotangents: a 1 where the state was forgotten, one at the first time of the second row.
fn cotangent(row: usize, time: usize) -> f32 {
    f32::from(row % 3 == 2 && time % 97 == 5 || row % 3 == 1 && time == 0)
}

impl Case {
    fn shape(&self, times: usize) -> Vec<usize> {
        if self.is_inside { vec![1, times, self.rows] } else { vec![self.rows, times] }
    }

    /// A tensor of some of the times, by its value at a row and a time.
    fn tensor(&self, device: &Device, (from, to): (usize, usize), value: impl Fn(usize, usize) -> f32) -> Tensor {
        let times = to - from;
        let place = |i: usize| if self.is_inside { (i % self.rows, i / self.rows) } else { (i / times, i % times) };
        let at = |i: usize| value(place(i).0, from + place(i).1);
        let all: Vec<f32> = (0..self.rows * times).map(at).collect();
        Tensor::from_slice(&all, &self.shape(times)).unwrap().to_device(device).unwrap()
    }

    fn at(&self, all: &[f32], times: usize, (row, time): (usize, usize)) -> f32 {
        all[if self.is_inside { time * self.rows + row } else { row * times + time }]
    }

    /// Asserts that what was found at some times, from one on, are the states.
    fn assert(&self, found: &Tensor, (from, to): (usize, usize), states: &[Vec<f64>], what: &str) {
        let all = found.to_vec::<f32>().unwrap();
        for (row, states) in states.iter().enumerate() {
            for (time, &wanted) in states.iter().enumerate().take(to).skip(from) {
                let found = f64::from(self.at(&all, to - from, (row, time - from)));
                let equal = (found - wanted).abs() <= 1e-4 * wanted.abs() || wanted > 3e38 && !found.is_finite();
                assert!(equal, "{what}: {found} instead of {wanted} in row {row} at {time} of {}", self.times);
            }
        }
    }

    fn check(&self, device: &Device, by: f32) {
        let (n, rows) = (self.times, self.rows);
        let what = format!("{} of {rows} rows, decay {by}, {device:?}", self.kernel.name());
        let inputs = |from, to| {
            let a = self.tensor(device, (from, to), |row, t| decay(by, row, t));
            [a, self.tensor(device, (from, to), |row, t| added(row, n - 1 - t, t))]
        };
        let [a, b] = inputs(0, n);
        let (whole, call) = self.kernel.call(&[Some(&a), Some(&b), None]).unwrap();
        let states: Vec<Vec<f64>> = (0..rows)
            .map(|row| {
                let mut h = 0.0;
                let mut step = |t: usize| {
                    h = f64::from(decay(by, row, t)) * h + f64::from(added(row, n - 1 - t, t));
                    h
                };
                (0..n).map(&mut step).collect()
            })
            .collect();
        self.assert(&whole[0], (0, n), &states, &what);
        let cut = n / 3;
        let [first, second] = [inputs(0, cut), inputs(cut, n)];
        let (early, _) = self.kernel.call(&[Some(&first[0]), Some(&first[1]), None]).unwrap();
        let (late, _) = self.kernel.call(&[Some(&second[0]), Some(&second[1]), Some(&early[1])]).unwrap();
        self.assert(&early[0], (0, cut), &states, &format!("{what}, first chunk"));
        self.assert(&late[0], (cut, n), &states, &format!("{what}, second chunk"));
        let bar = self.tensor(device, (0, n), cotangent);
        let gradients = self.kernel.backward(&call, &[Some(&bar), None]).unwrap();
        let walked: Vec<Vec<f64>> = (0..rows)
            .map(|row| {
                let (mut g, mut all) = (0.0, vec![0.0; n]);
                for t in (0..n).rev() {
                    let next = if t + 1 < n { f64::from(decay(by, row, t + 1)) } else { 0.0 };
                    g = next * g + f64::from(cotangent(row, t));
                    all[t] = g;
                }
                all
            })
            .collect();
        self.assert(gradients[1].as_ref().unwrap(), (0, n), &walked, &format!("{what}, gradient"));
    }
}

#[test]
fn states_that_single_steps_keep_are_kept() {
    let gpu = (Device::cuda_count() > 0).then(|| Device::cuda(0).unwrap());
    let shape = |kernel, rows, times, is_inside| Case { kernel, rows, times, is_inside };
    let cases = [
        shape(affine::kernel(), 3, 70_001, false),
        shape(affine::kernel(), 1, 40_000, false),
        shape(affine::kernel(), 96, 3000, false),
        shape(affine::kernel(), 500, 600, false),
        shape(affine_time_first::kernel(), 64, 9000, true),
        shape(affine_time_first::kernel(), 33, 5001, true),
        shape(affine_time_first::kernel(), 4096, 300, true),
    ];
    for device in [Some(Device::Cpu), gpu].into_iter().flatten() {
        for by in [1.05, 1.5, 1e30] {
            cases.iter().for_each(|case| case.check(&device, by));
        }
    }
}
