//! The images of docs/on-disk/13-checksums-compression.md, section 5.2, round trips, bad streams.

use super::*;
use aws_lc_rs::digest;

/// Id, logical size, image without padding, start of the SHA-256 of the block.
const IMAGES: [(u8, usize, &str, &str); 13] = [
    (
        3,
        2048,
        "00eb276e20df7436c6fe00fc01fc42fc42fc42fc42fc42fc42fffc42fc42fc42fc42fc42fc42fc42fc42fffc42fc42fc42fc42fc42fc42fc42fc427ffc42fc42fc42fc42fc42fc42fc42",
        "3bccf6b3f80e9be4edc494822d11ab52",
    ),
    (
        5,
        512,
        "780163601805d842e04bc89a6c66a0c4421001042ba71d4809dbd8bdf92b9af88c4d9c15ce0b22d220aa861e090088e50e22",
        "bd099306462d1359a13196fc41c5f4fe",
    ),
    (
        6,
        4096,
        "785e63601805a321301a02a321301a02b40c81dbfb6f740b032d506083d8622577dc2d98d9f7122ded1c357b34044643603404464360340446436034044643603404d04300000ea90611",
        "30cd8fc6179dea167b0da07fe5fac598",
    ),
    (
        7,
        4096,
        "785e63601805a321301a02a321301a02a321301a02a321301a02a321301a02e821d0d8a029c20b142c6086c8d86a1acbfc3b90b06c34a44643603404464360a8860000080d0538",
        "4f18ddfb786dc8e9b44ceb3dcd5648b1",
    ),
    (
        8,
        4096,
        "785e63608080bfdfee7e1206d2294c10bec3a903bdd1296bde42a547c1281805a360148c8251300a46c1281805a360148c8251308401000b3a08eb",
        "a0b35a8048d50bd8c5f44555c14b9316",
    ),
    (
        9,
        16384,
        "785eedcbb109c020004451718ccc2204b24a66720a27b04f6de9145921a08575da4078aff95c712100000000000000000000000000f04747aacf36bbc7b5af76f672e7d71300009f19b3eb07c9",
        "a4ab762e9c3e772c22332794514320d4",
    ),
    (
        10,
        16384,
        "789cedcea10dc020004451241b346191ce50d10db078e6e81a2864d7ab0281ad6ed2bc677ece5d08ff74a6fbda66fbda351fb13d65fff213000000000000000000000000000000bc19377605b9",
        "9773a6bac5f917129ba62a3a04d2503a",
    ),
    (
        11,
        16384,
        "78daedc7211180501445c18b67063a9005470b049a18f4c0fd2c64a10282e790d85d73e6dc573bb679eaf6bcce7cf41993a1a65597ea0a000000000000000000000000000000fcf6004475aea0",
        "7dd85c2597dcdaf04ba9370429e578a7",
    ),
    (
        12,
        16384,
        "78daedc7211180400045c1cf60e881a207387aa0af028e1e38b25c162a200e8745ee9a37efaed7b12d6357d29cf9989221fb3b73dfba06000000000000000000000000000000f8cb03c878061c",
        "75a273d63a0ea335ec3171366ab2aa58",
    ),
    (
        13,
        16384,
        "78daedc7211180400045c17f8e0604608882a3079a0ae7e881230b59ae02e27058e4ae79f3da7d1ddb32953ddd998f311932bf534bef1a000000000000000000000000000000e02f0f0d8405e9",
        "c7c01e946d44b87412e923cfd28584cf",
    ),
    (
        14,
        4096,
        "ffffffffffffffffffffffffffffffa70495cb78160542016703450c43a77a7e8883722f96cb781605420167034507e54391d669ddc58effffffffffa7",
        "42beb562d28ee6d65994a8ffb4d78bdc",
    ),
    (
        15,
        512,
        "0000004d2103000100418071c33409000f02001d28670732008870726f705f37363014000f02004b28670660006f7478675f3732ca00190fc000010f41001a0f02006c0f0001000f7f011550",
        "3b7d7f750bd051a7d9bb7b305a9ae864",
    ),
    (
        16,
        1048576,
        "000000440d0028a500501c010090efcdab89674523016a000a040011928f04000500c2ffb83c43b947936300b9017401020010000200100002001000020010000200100002001000030010",
        "4fd313d27c99d20beb378aa0186a8bb3",
    ),
];

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn images() -> impl Iterator<Item = (CompressionId, Vec<u8>, usize, Vec<u8>)> {
    IMAGES.into_iter().map(|(id, lsize, image, hash)| {
        (CompressionId::from_id(id).unwrap(), unhex(image), lsize, unhex(hash))
    })
}

fn padded(image: &[u8]) -> Vec<u8> {
    let mut padded = image.to_vec();
    padded.resize(image.len().next_multiple_of(512), 0);
    padded
}

fn all() -> impl Iterator<Item = CompressionId> {
    (3..=16).filter_map(|id| CompressionId::from_id(id).ok()).filter(|id| *id != CompressionId::Empty)
}

/// Blocks with all kinds of content: zeros, text, noise, long and short repeats.
fn samples() -> Vec<Vec<u8>> {
    let mut x = 0x1234_5678_9abc_def1u64;
    let mut noise = |len: usize| -> Vec<u8> {
        (0..len)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x as u8
            })
            .collect()
    };
    let mut out = vec![vec![], vec![1], vec![0; 512], vec![0xff; 131_072], noise(4096)];
    out.push((0..16_384u32).map(|i| (i / 64) as u8).collect());
    out.push(b"the quick brown fox; ".iter().copied().cycle().take(100_000).collect());
    let mut mixed = vec![0; 65_536];
    for at in (0..65_536).step_by(997) {
        let piece = noise(100);
        let end = (at + 100).min(mixed.len());
        mixed[at..end].copy_from_slice(&piece[..end - at]);
    }
    out.push(mixed);
    out.push(noise(10).repeat(7000));
    out
}

#[test]
fn images_of_real_pools() {
    for (id, image, lsize, hash) in images() {
        let mut block = vec![0xaa; lsize];
        assert_eq!(decompress(id, &padded(&image), &mut block), Ok(()), "{id}");
        assert!(digest::digest(&digest::SHA256, &block).as_ref().starts_with(&hash), "{id}");
    }
}

#[test]
fn the_encoders_of_our_own_write_the_images_of_real_pools() {
    for (id, image, lsize, _) in images() {
        if matches!(id, CompressionId::Lzjb | CompressionId::Zle) {
            let mut block = vec![0; lsize];
            decompress(id, &padded(&image), &mut block).unwrap();
            let mut ours = compress(id, 0, &block, lsize).unwrap();
            // The images of the specification have no trailing zeros, whether or not these were padding.
            assert!(ours.len() >= image.len());
            ours.truncate(ours.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            assert_eq!(ours, image, "{id}");
        }
    }
}

#[test]
fn round_trips() {
    for block in samples() {
        for id in all() {
            let levels: &[i32] = if id == CompressionId::Zstd { &[0, 1, 9, -5, -1000] } else { &[0] };
            for &level in levels {
                let image =
                    compress(id, level, &block, 2 * block.len() + 100).expect("room for the worst case");
                let mut back = vec![0x77; block.len()];
                assert_eq!(decompress(id, &padded(&image), &mut back), Ok(()), "{id} of {}", block.len());
                assert!(back == block, "{id} of {}", block.len());
            }
        }
    }
}

#[test]
fn a_limit_is_kept() {
    for block in samples() {
        for id in all() {
            let Some(image) = compress(id, 0, &block, block.len()) else { continue };
            assert!(image.len() <= block.len());
            let limit = image.len().saturating_sub(1);
            if let Some(smaller) = compress(id, 0, &block, limit) {
                assert!(smaller.len() <= limit, "{id}");
            }
            assert_eq!(compress(id, 0, &[1, 2, 3], 0), None, "{id}");
        }
    }
}

#[test]
fn another_size_is_an_error() {
    for (id, image, lsize, _) in images() {
        let image = padded(&image);
        // Streams of lzjb have no end, and those of zle end at any run: a shorter output is valid.
        if !matches!(id, CompressionId::Lzjb | CompressionId::Zle) {
            assert!(decompress(id, &image, &mut vec![0; lsize - 1]).is_err(), "{id}");
            assert!(decompress(id, &image, &mut vec![0; 2 * lsize]).is_err(), "{id}");
        }
        assert!(decompress(id, &image[..20], &mut vec![0; lsize]).is_err(), "{id}");
        assert!(decompress(id, &[], &mut vec![0; lsize]).is_err(), "{id}");
    }
}

#[test]
fn what_never_stands_on_disk_is_refused() {
    for id in [CompressionId::Inherit, CompressionId::On, CompressionId::Empty] {
        assert_eq!(decompress(id, &[0; 512], &mut [0; 512]), Err(DecompressError::Algorithm { id }));
        assert_eq!(compress(id, 0, &[0; 512], 512), None);
    }
}

#[test]
fn stored_blocks_are_copied_when_the_sizes_agree() {
    let mut out = [0; 3];
    assert_eq!(decompress(CompressionId::Off, &[1, 2, 3], &mut out), Ok(()));
    assert_eq!(out, [1, 2, 3]);
    let size = DecompressError::Size { id: CompressionId::Off, expected: 3 };
    assert_eq!(decompress(CompressionId::Off, &[1, 2], &mut out), Err(size));
}

#[test]
fn lzjb_may_not_reach_before_the_block() {
    let corrupt = Err(DecompressError::Corrupt { id: CompressionId::Lzjb });
    assert_eq!(decompress(CompressionId::Lzjb, &[1, 0, 1, 0, 0], &mut [0; 64]), corrupt);
    assert_eq!(decompress(CompressionId::Lzjb, &[2, 9, 0, 0, 0], &mut [0; 64]), corrupt, "distance 0");
    assert_eq!(decompress(CompressionId::Lzjb, &[2, 9, 0, 2, 0], &mut [0; 64]), corrupt);
}

#[test]
fn lengths_beyond_the_image_are_errors() {
    for id in [CompressionId::Lz4, CompressionId::Zstd] {
        let mut image = vec![0xff; 512];
        let truncated = Err(DecompressError::Truncated { id, have: 512 });
        assert_eq!(decompress(id, &image, &mut [0; 1024]), truncated);
        image[..4].copy_from_slice(&509u32.to_be_bytes());
        assert_eq!(decompress(id, &image, &mut [0; 1024]), truncated);
    }
}

#[test]
fn a_failed_block_does_not_spoil_the_next() {
    for (id, image, lsize, hash) in images() {
        let mut broken = padded(&image);
        for byte in broken.iter_mut().skip(10).take(8) {
            *byte ^= 0x5a;
        }
        let mut block = vec![0; lsize];
        let _ = decompress(id, &broken, &mut block);
        assert_eq!(decompress(id, &padded(&image), &mut block), Ok(()), "{id}");
        assert!(digest::digest(&digest::SHA256, &block).as_ref().starts_with(&hash), "{id}");
    }
}

#[test]
fn zeros_are_found() {
    for len in [0, 1, 63, 64, 65, 4096] {
        let mut block = vec![0; len];
        assert!(is_zero(&block));
        if let Some(last) = block.last_mut() {
            *last = 1;
            assert!(!is_zero(&block));
        }
    }
}

#[test]
fn a_block_of_unknown_size_is_as_large_as_its_stream_tells() {
    let block: Vec<u8> = (0..40_960_u32).map(|i| (i / 97) as u8).collect();
    for id in [CompressionId::Lz4, CompressionId::Zstd, CompressionId::Gzip1, CompressionId::Gzip9] {
        let mut image = compress(id, 0, &block, block.len()).expect("it shrinks");
        // As on disk: zeros up to the next sector.
        image.resize(image.len().next_multiple_of(512), 0);
        let mut found = vec![0xee; 1 << 20];
        assert_eq!(decompress_some(id, &image, &mut found), Ok(block.len()), "{id}");
        assert_eq!(found.get(..block.len()), Some(&block[..]), "{id}");
        let mut small = vec![0; block.len() - 1];
        assert!(decompress_some(id, &image, &mut small).is_err(), "{id}: no room");
    }
    assert!(
        decompress_some(CompressionId::Lzjb, &[0; 512], &mut [0; 512]).is_err(),
        "its streams have no end"
    );
}

#[test]
fn zle_blocks_end_where_their_runs_do() {
    // Two literals, 192 zeros, and a run that is cut off.
    assert_eq!(zle_ends(&[1, 7, 7, 255, 3, 7]).collect::<Vec<_>>(), [2, 194]);
    assert_eq!(zle_ends(&[]).count(), 0);
}

#[test]
fn zstd_headers_of_all_writers() {
    let header = |word: [u8; 4]| ZstdHeader::decode(&[&[0, 0, 0x63, 0x1f], &word[..]].concat());
    let expected = Some(ZstdHeader { size: 25_375, version: 10_405, level: 9 });
    assert_eq!(header([9, 0, 0x28, 0xa5]), expected);
    assert_eq!(header([0, 0x28, 0xa5, 9]), expected);
    assert_eq!(ZstdHeader::decode(&[0; 7]), None);
}
