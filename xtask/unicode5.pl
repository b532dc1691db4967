#!/usr/bin/perl
# Writes crates/dmu/src/zap/unicode5.rs from the Unicode database that comes with Perl (5.0 or newer):
#     perl xtask/unicode5.pl > crates/dmu/src/zap/unicode5.rs
# ZAP names are prepared as Unicode 5.0 says; newer databases know more characters, but never change
# what 5.0 said of the old ones.
use strict;
use warnings;
use Unicode::UCD qw(prop_invmap);

sub each_code_point {
    my ($property, $visit) = @_;
    my ($starts, $values) = prop_invmap($property);
    for my $i (0 .. $#$starts) {
        my $end = $i < $#$starts ? $starts->[$i + 1] - 1 : 0x10FFFF;
        $end = 0x10FFFF if $end > 0x10FFFF;
        $visit->($starts->[$i], $end, $values->[$i]);
    }
}

my (@assigned, %old);
each_code_point('Age', sub {
    my ($first, $last, $age) = @_;
    return unless $age =~ /^[\d.]+$/ && $age <= 5.0;
    $old{$_} = 1 for $first .. $last;
    if (@assigned && $assigned[-1][1] + 1 == $first) { $assigned[-1][1] = $last }
    else { push @assigned, [$first, $last] }
});

# Runs of the same distance, at every or every other code point.
my @upper;
each_code_point('Simple_Uppercase_Mapping', sub {
    my ($first, $last, $to) = @_;
    return if $to == 0;
    for my $from ($first .. $last) {
        my $upper = $to + $from - $first;
        next if $upper == $from || !$old{$from} || !$old{$upper};
        my $run = $upper[-1];
        my $step = $run ? $from - $run->[1] : 0;
        if ($run && $run->[3] == $upper - $from && ($step == 1 || $step == 2)
            && ($run->[2] == 0 || $run->[2] == $step)) {
            $run->[1] = $from;
            $run->[2] = $step;
        } else {
            push @upper, [$from, $from, 0, $upper - $from];
        }
    }
});

sub table {
    my ($per_line, @items) = @_;
    while (my @line = splice @items, 0, $per_line) {
        print '    ', join(' ', map { "$_," } @line), "\n";
    }
    print "];\n";
}

print <<'END';
//! What Unicode 5.0 assigned, and its simple upper-case mappings. Made by `xtask/unicode5.pl`.

/// First and last of each run of code points assigned in Unicode 5.0, ascending.
#[rustfmt::skip]
pub(super) static ASSIGNED: &[(u32, u32)] = &[
END
table(6, map { sprintf '(0x%X, 0x%X)', @$_ } @assigned);
print <<'END';

/// First, last, step and distance to upper case of runs of lower-case letters, ascending.
#[rustfmt::skip]
pub(super) static UPPER: &[(u32, u32, u32, i32)] = &[
END
table(4, map { sprintf '(0x%X, 0x%X, %d, %d)', $_->[0], $_->[1], $_->[2] || 1, $_->[3] } @upper);
