//! The vectors of docs/on-disk/13-checksums-compression.md, section 5.1, and the rules around them.

use super::*;

fn ramp() -> Vec<u8> {
    (0..512).map(|i| i as u8).collect()
}

fn squares() -> Vec<u8> {
    (0..4096u32).map(|i| ((i * i + 7) % 251) as u8).collect()
}

fn salt() -> Salt {
    Salt(std::array::from_fn(|i| i as u8))
}

#[test]
fn vectors_of_the_spec() {
    let vectors = [
        (
            ChecksumId::Fletcher2,
            Endian::Little,
            ramp(),
            [0xefcf_af8f_6f4f_2f00, 0xf0d0_b090_7050_3000, 0x4a38_2614_01ef_dd00, 0xdac8_b6a4_9280_6d80],
        ),
        (
            ChecksumId::Fletcher2,
            Endian::Big,
            ramp(),
            [0x0f2f_4f6f_8faf_cfe0, 0x1030_5070_90b0_d0e0, 0xcfe1_f406_182a_3b70, 0x6072_8496_a8ba_cbf0],
        ),
        (
            ChecksumId::Fletcher4,
            Endian::Little,
            ramp(),
            [0x0000_0040_c03f_bf00, 0x0000_0da3_42e2_7500, 0x0002_14fa_7f82_8a80, 0x003d_9765_c9f3_c980],
        ),
        (
            ChecksumId::Fletcher4,
            Endian::Big,
            ramp(),
            [0x0000_003f_3fc0_4080, 0x0000_0d42_62c3_15c0, 0x0002_0494_8f88_6b00, 0x003b_7e5b_56b4_41e0],
        ),
        (
            ChecksumId::Sha256,
            Endian::Little,
            ramp(),
            [0x1100_09dc_ee21_620b, 0x166f_3abf_ecb5_eff7, 0xa873_be72_9d1c_2d53, 0x822e_7acc_5f34_eb9b],
        ),
        (
            ChecksumId::Sha512,
            Endian::Little,
            ramp(),
            [0x6cf5_b141_1d91_141d, 0x0ea8_ddb8_6fa6_27f0, 0x9918_9677_9c0d_a9d7, 0x3bdc_08f7_e9f3_faed],
        ),
        (
            ChecksumId::Skein,
            Endian::Little,
            ramp(),
            [0xdf06_b17b_ad51_5284, 0xc107_4e6c_80f8_0357, 0x0564_949c_f231_e28f, 0x3b30_efa6_5148_a406],
        ),
        (
            ChecksumId::Edonr,
            Endian::Little,
            ramp(),
            [0x86f0_09c2_9382_3406, 0x1787_f335_116e_f352, 0x616d_e2d3_955e_b1e1, 0x0f0e_3039_494f_a11f],
        ),
        (
            ChecksumId::Blake3,
            Endian::Little,
            ramp(),
            [0x68e5_f03a_15d3_2d73, 0x2e2d_8e52_a9e2_d91f, 0xb6eb_0668_176e_2d68, 0x95bf_9be2_259b_6c22],
        ),
        (
            ChecksumId::Fletcher2,
            Endian::Little,
            squares(),
            [0xbd27_ab39_cc6e_185c, 0x5e8d_bbfb_388a_e0ce, 0x4174_c6bd_dd37_f2e9, 0x99e8_fc9b_46bb_a5f0],
        ),
        (
            ChecksumId::Fletcher2,
            Endian::Big,
            squares(),
            [0xd51a_6ecc_39ac_2543, 0x47e1_8b37_fabc_8ee5, 0xdaf7_26c2_1e87_3a18, 0x9bb5_c403_f9e3_9d2a],
        ),
        (
            ChecksumId::Fletcher4,
            Endian::Little,
            squares(),
            [0x0000_01e7_20ae_5f6b, 0x0003_c48d_b35c_ef99, 0x0502_d997_6a04_da41, 0x0159_4ad9_2418_8c8d],
        ),
        (
            ChecksumId::Fletcher4,
            Endian::Big,
            squares(),
            [0x0000_01e3_5164_ad3a, 0x0003_cbc3_82b8_38e8, 0x050f_e5b9_4717_ae42, 0x1124_15a5_131f_a30f],
        ),
        (
            ChecksumId::Sha256,
            Endian::Little,
            squares(),
            [0x0792_0195_6b9d_82ed, 0x1f2f_3ee4_6e07_9d23, 0x3eba_4746_9af3_29b2, 0x359c_c9a7_fe3f_dd47],
        ),
        (
            ChecksumId::Sha512,
            Endian::Little,
            squares(),
            [0xe1f9_025a_acde_6785, 0xd603_8a1e_ae5e_aaf1, 0x88cf_6670_0bf9_33d2, 0x7f0d_5403_67f6_e181],
        ),
        (
            ChecksumId::Skein,
            Endian::Little,
            squares(),
            [0xc92e_3b34_e0c4_b1d0, 0x5944_f990_30e9_fd32, 0x4c53_e0ae_2bc8_565f, 0xe4d4_1def_69a9_1ece],
        ),
        (
            ChecksumId::Edonr,
            Endian::Little,
            squares(),
            [0x0cbf_3ca2_6926_6971, 0x1c64_7de5_c37d_c707, 0x94d3_7716_4ff6_14c0, 0x9cec_a3bd_075c_dc23],
        ),
        (
            ChecksumId::Blake3,
            Endian::Little,
            squares(),
            [0x4eea_f488_cfc5_1e04, 0xf8da_9ed2_e6cb_5252, 0x5770_e03f_a320_90d6, 0x3611_ec5c_4c35_0ea3],
        ),
    ];
    for (id, order, data, expected) in vectors {
        assert_eq!(compute(id, &data, order, Some(&salt())), Ok(Checksum(expected)), "{id} {order:?}");
    }
}

#[test]
fn blocks_of_the_other_order_swap_the_words_of_all_strong_checksums_but_sha256() {
    for id in [ChecksumId::Sha512, ChecksumId::Skein, ChecksumId::Edonr, ChecksumId::Blake3] {
        let little = compute(id, &ramp(), Endian::Little, Some(&salt())).unwrap();
        let big = compute(id, &ramp(), Endian::Big, Some(&salt())).unwrap();
        assert_eq!(big.0, little.0.map(u64::swap_bytes), "{id}");
    }
    let sha = |order| compute(ChecksumId::Sha256, &ramp(), order, None);
    assert_eq!(sha(Endian::Little), sha(Endian::Big));
}

#[test]
fn no_salt_is_an_error_and_not_a_salt_of_zeros() {
    for id in [ChecksumId::Skein, ChecksumId::Edonr, ChecksumId::Blake3] {
        assert_eq!(compute(id, &[], Endian::Little, None), Err(ChecksumError::NoSalt { id }));
    }
}

#[test]
fn what_is_not_for_blocks_is_refused() {
    for id in [ChecksumId::Inherit, ChecksumId::On, ChecksumId::Label, ChecksumId::Zilog2] {
        let refused = ChecksumError::Algorithm { id: id.id() };
        assert_eq!(compute(id, &ramp(), Endian::Little, None), Err(refused));
    }
    let odd = ChecksumError::Length { id: ChecksumId::Fletcher4, len: 7, word: 4 };
    assert_eq!(compute(ChecksumId::Fletcher4, &[1; 7], Endian::Little, None), Err(odd));
}

fn pointer(id: ChecksumId, words: [u64; 4]) -> BlockPtr {
    let mut bp = BlockPtr::HOLE.with_word(0, 1).with_word(1, 8).with_word(10, 5);
    for (i, word) in words.into_iter().enumerate() {
        bp = bp.with_word(12 + i, word);
    }
    bp.with_prop_bits(40, 8, id.id().into()).with_prop_bits(48, 8, 19).with_prop_bits(63, 1, 1)
}

#[test]
fn protected_pointers_keep_half_a_checksum() {
    let data = squares();
    for id in [ChecksumId::Fletcher4, ChecksumId::Fletcher2, ChecksumId::Sha256, ChecksumId::Edonr] {
        let full = compute(id, &data, Endian::Little, Some(&salt())).unwrap();
        let plain = pointer(id, full.0);
        assert_eq!(verify(&plain, &data, Some(&salt())), Ok(true));
        let protected = pointer(id, with_mac(id, full, &[0x5a; 16]).0).with_prop_bits(61, 1, 1);
        assert_eq!(verify(&protected, &data, Some(&salt())), Ok(true), "{id}");
        assert_eq!(protected.mac_bytes(), [0x5a; 16]);
        let objset = protected.with_prop_bits(48, 8, 11);
        assert_eq!(verify(&objset, &data, Some(&salt())), Ok(false), "{id}");
        let mut other = data.clone();
        other[4000] ^= 0x10;
        assert_eq!(verify(&protected, &other, Some(&salt())), Ok(false));
    }
}

#[test]
fn pointers_without_a_checksum_verify() {
    assert_eq!(verify(&BlockPtr::HOLE, &[], None), Ok(true));
    assert_eq!(verify(&pointer(ChecksumId::Off, [0; 4]), &[1, 2, 3], None), Ok(true));
    let unknown = BlockPtr::HOLE.with_word(0, 1).with_prop_bits(40, 8, 99);
    assert_eq!(verify(&unknown, &[], None), Err(ChecksumError::Algorithm { id: 99 }));
}
