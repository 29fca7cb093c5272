//! Operators in text form, for programs that are written by `concat!`.

macro_rules! operators {
    () => {
        "operator Affine(a: f32, b: f32) { identity (1.0, 0.0);
            %0: f32 = input l.a; %1: f32 = input l.b; %2: f32 = input r.a; %3: f32 = input r.b;
            %4: f32 = %0 * %2; %5: f32 = %2 * %1; %6: f32 = %5 + %3; combine (%4, %6); }
        operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1;
            combine (%2); }"
    };
}
