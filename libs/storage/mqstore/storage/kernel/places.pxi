# Files that stay at their paths --------------------------------------------------------------------


cdef extern from "<sys/stat.h>" nogil:
    cdef struct stat_of_file "stat":
        uint64_t st_dev
        uint64_t st_ino
    int lstat(const char *path, stat_of_file *found)


@cython.final
cdef class PlaceWatch:
    cdef list places

    def __init__(self, list places not None):
        self.places = [(<bytes?> path, <tuple?> place) for path, place in places]

    def is_same(self):
        cdef stat_of_file found
        cdef tuple each, place
        for each in self.places:
            place = each[1]
            if lstat(<bytes> each[0], &found) != 0:
                return False
            if found.st_dev != <uint64_t> place[0] or found.st_ino != <uint64_t> place[1]:
                return False
        return True
