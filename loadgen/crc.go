package loadgen

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// joinCRC is the CRC-32C of two pieces one after the other, given that of each
// and the bytes of the second. A CRC is a remainder of polynomials over GF(2): n
// bytes behind the first piece multiply its remainder by x to the power of 8n, and
// the second piece's is added.
func joinCRC(first, second uint32, secondBytes int) uint32 {
	factor := uint32(1) << 31 // x^0; the highest bit is the lowest power, as in the checksum itself
	for k, n := 0, uint64(secondBytes)*8; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			factor = mulCRC(factor, powers[k])
		}
	}
	return mulCRC(factor, first) ^ second
}

// powers are x to the power of 2^k, reduced.
var powers = func() (p [40]uint32) {
	p[0] = 1 << 30 // x
	for k := 1; k < len(p); k++ {
		p[k] = mulCRC(p[k-1], p[k-1])
	}
	return p
}()

// mulCRC multiplies two reduced polynomials.
func mulCRC(a, b uint32) uint32 {
	var sum uint32
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			sum ^= b
		}
		carry := -(b & 1)
		b = b>>1 ^ carry&crc32.Castagnoli
	}
	return sum
}
