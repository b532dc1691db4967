//! CCM (RFC 3610) with nonces of 12 bytes and tags of 16.
//!
//! The whole message is processed in one closure, so that the check for the processor's AES instructions is made
//! once and the loops are compiled with them. The key stream is generated for many blocks at a time; the MAC must
//! process blocks in sequence and limits the speed.

use super::{IV_LEN, MAC_LEN};
use aes::cipher::common::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit, ParBlocks,
};
use aes::{Aes128, Aes192, Aes256};

const BLOCK: usize = 16;
/// Size in bytes of the length and of the counter: what the nonce leaves of a block.
const LENGTH_BYTES: usize = BLOCK - 1 - IV_LEN;

/// A key prepared for encryption and decryption.
pub(super) enum Ccm {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Ccm {
    /// Maximum size of a message in bytes.
    pub(super) const LEN_MAX: usize = (1 << (8 * LENGTH_BYTES)) - 1;

    /// `key` has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Ccm {
        const LENGTH: &str = "callers pass keys of the suite's length";
        match key.len() {
            16 => Ccm::Aes128(Aes128::new_from_slice(key).expect(LENGTH)),
            24 => Ccm::Aes192(Aes192::new_from_slice(key).expect(LENGTH)),
            _ => Ccm::Aes256(Aes256::new_from_slice(key).expect(LENGTH)),
        }
    }

    /// Encrypts `data`, at most [`Ccm::LEN_MAX`] bytes, in place. Returns the tag.
    pub(super) fn seal(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8]) -> [u8; MAC_LEN] {
        self.run(iv, aad, data, false)
    }

    /// Decrypts `data`, at most [`Ccm::LEN_MAX`] bytes, in place. Returns the expected tag.
    pub(super) fn open(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8]) -> [u8; MAC_LEN] {
        self.run(iv, aad, data, true)
    }

    fn run(&self, iv: &[u8; IV_LEN], aad: &[u8], data: &mut [u8], is_open: bool) -> [u8; MAC_LEN] {
        let mut tag = [0; MAC_LEN];
        let message = Message { iv, aad, data, is_open, tag: &mut tag };
        match self {
            Ccm::Aes128(cipher) => cipher.encrypt_with_backend(message),
            Ccm::Aes192(cipher) => cipher.encrypt_with_backend(message),
            Ccm::Aes256(cipher) => cipher.encrypt_with_backend(message),
        }
        tag
    }
}

type Block = Array<u8, U16>;

struct Message<'a> {
    iv: &'a [u8; IV_LEN],
    aad: &'a [u8],
    data: &'a mut [u8],
    is_open: bool,
    tag: &'a mut [u8; MAC_LEN],
}

impl BlockSizeUser for Message<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Message<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut mac = Chain { backend, state: Block::default() };
        mac.absorb(&[self.first_block()], &[]);
        if !self.aad.is_empty() {
            mac.absorb_aad(self.aad);
        }
        let mut counter = 1u32;
        let mut stream = ParBlocks::<B>::default();
        for chunk in self.data.chunks_mut(BLOCK * stream.len()) {
            for block in &mut stream {
                *block = Array(counter_block(self.iv, counter));
                counter = counter.wrapping_add(1);
            }
            backend.encrypt_par_blocks_inplace(&mut stream);
            if !self.is_open {
                mac.absorb_bytes(chunk);
            }
            xor(chunk, &stream);
            if self.is_open {
                mac.absorb_bytes(chunk);
            }
        }
        let mut pad = Array(counter_block(self.iv, 0));
        backend.encrypt_block_inplace(&mut pad);
        *self.tag = mac.state.0;
        xor(self.tag, &[pad]);
    }
}

impl Message<'_> {
    /// The first block of the CBC chain: flags, nonce, message length.
    fn first_block(&self) -> [u8; BLOCK] {
        let has_aad = if self.aad.is_empty() { 0 } else { 0x40 };
        let tag_size = ((MAC_LEN as u8 - 2) / 2) << 3;
        let mut block = counter_block(self.iv, self.data.len() as u32);
        block[0] |= has_aad | tag_size;
        block
    }
}

/// Flags, nonce, and three bytes of counter.
#[inline(always)]
fn counter_block(iv: &[u8; IV_LEN], counter: u32) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[0] = LENGTH_BYTES as u8 - 1;
    block[1..=IV_LEN].copy_from_slice(iv);
    (u128::from_be_bytes(block) | u128::from(counter)).to_be_bytes()
}

#[inline(always)]
fn xor(chunk: &mut [u8], stream: &[Block]) {
    let (blocks, tail) = chunk.as_chunks_mut::<BLOCK>();
    let mut keys = stream.iter();
    for (block, key) in blocks.iter_mut().zip(&mut keys) {
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
    if let Some(key) = keys.next() {
        for (byte, key) in tail.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
}

/// The CBC chain, whose last block is the MAC.
struct Chain<'a, B> {
    backend: &'a B,
    state: Block,
}

impl<B: BlockCipherEncBackend<BlockSize = U16>> Chain<'_, B> {
    /// Adds whole blocks, then a partial block that is padded with zeros.
    #[inline(always)]
    fn absorb(&mut self, blocks: &[[u8; BLOCK]], tail: &[u8]) {
        // The chain limits the speed: its state must stay in a register.
        let mut state = self.state;
        for block in blocks {
            state = self.step(state, block);
        }
        if !tail.is_empty() {
            let mut padded = [0; BLOCK];
            padded[..tail.len()].copy_from_slice(tail);
            state = self.step(state, &padded);
        }
        self.state = state;
    }

    #[inline(always)]
    fn step(&self, state: Block, plain: &[u8; BLOCK]) -> Block {
        let mut block = state;
        for (a, b) in block.iter_mut().zip(plain) {
            *a ^= b;
        }
        self.backend.encrypt_block_inplace(&mut block);
        block
    }

    #[inline(always)]
    fn absorb_bytes(&mut self, bytes: &[u8]) {
        let (blocks, tail) = bytes.as_chunks();
        self.absorb(blocks, tail);
    }

    /// Adds the length in its short or long form, directly followed by the data.
    #[inline(always)]
    fn absorb_aad(&mut self, aad: &[u8]) {
        let mut first = [0; BLOCK];
        let prefix = if aad.len() < 0xff00 {
            first[..2].copy_from_slice(&(aad.len() as u16).to_be_bytes());
            2
        } else {
            first[..2].copy_from_slice(&[0xff, 0xfe]);
            first[2..6].copy_from_slice(&(aad.len() as u32).to_be_bytes());
            6
        };
        let (head, rest) = aad.split_at(aad.len().min(BLOCK - prefix));
        first[prefix..prefix + head.len()].copy_from_slice(head);
        self.absorb(&[first], &[]);
        self.absorb_bytes(rest);
    }
}
